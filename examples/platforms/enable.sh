#!/usr/bin/env bash
# Append the lines of spark-events to spark-defaults.conf; keep other listeners and the existing class path. If the lines
# already exist, do nothing. Variables: PREFIX: installation folder of install.sh. SPARK_DEFAULTS: the file to change.
set -euo pipefail

prefix=${PREFIX:-/opt/spark-events}
defaults=${SPARK_DEFAULTS:-/etc/spark/conf/spark-defaults.conf}

value_of() { sed -nE "s/^[[:space:]]*$1[[:space:]=:]+//p" "$defaults" | tail -n 1; }

listeners=$(value_of 'spark\.extraListeners')
path=$(value_of 'spark\.driver\.extraClassPath')
if [[ $listeners == *io.sparkevents.EventsListener* ]]; then exit; fi

# Of two lines with one key, Spark uses the last one.
"$prefix/bin/spark-events" conf --install "$prefix" |
    while read -r key value; do
        case $key in
            spark.extraListeners) value=${listeners:+$listeners,}$value ;;
            spark.driver.extraClassPath) value=${path:+$path:}$value ;;
        esac
        echo "$key${value:+ $value}"
    done >>"$defaults"
