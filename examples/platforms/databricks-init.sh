#!/usr/bin/env bash
# Cluster-scoped init script for Databricks. Upload this script and the wheel, and set WHEEL to the wheel's path.
# Reporters are configured in the cluster's Spark config, as spark.events.*.
set -euo pipefail

wheel=${WHEEL:-/Volumes/main/default/libraries/spark_events-0.1.0-py3-none-any.whl}
databricks=${DATABRICKS_ROOT:-/databricks}

"$databricks/python/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel${EXTRAS:+[$EXTRAS]}"
"$databricks/python/bin/spark-events" conf --jar --install "$databricks/jars"

# A listener in the cluster's Spark config would replace Databricks' own listener; this file sets both listeners.
cat >"$databricks/driver/conf/00-spark-events.conf" <<END
[driver] {
  "spark.extraListeners" = "com.databricks.backend.daemon.driver.DBCEventLoggingListener,io.sparkevents.EventsListener"
  "spark.events.python" = "$databricks/python/bin/python"
}
END
