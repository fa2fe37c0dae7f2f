#!/usr/bin/env bash
# Initialization action for Dataproc, before enable.sh. The cluster's metadata names the wheel, and optionally extras:
#   --metadata spark-events-wheel=gs://BUCKET/spark_events-0.1.0-py3-none-any.whl,spark-events-extras=otlp
set -euo pipefail

prefix=${PREFIX:-/opt/spark-events}
metadata=${METADATA:-/usr/share/google/get_metadata_value}
wheel=$("$metadata" attributes/spark-events-wheel)
extras=$("$metadata" attributes/spark-events-extras || true)

folder=$(mktemp -d)
gcloud storage cp "$wheel" "$folder/"
"${PYTHON:-/opt/conda/default/bin/python}" -m venv "$prefix"
"$prefix/bin/python" -m pip install --quiet --disable-pip-version-check "$folder/${wheel##*/}${extras:+[$extras]}"
rm -r "$folder"
