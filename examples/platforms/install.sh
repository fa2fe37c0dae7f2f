#!/usr/bin/env bash
# Install spark-events into a separate environment, with the jar at a path that does not change in an upgrade:
#   install.sh WHEEL [EXTRAS]          for example: install.sh dist/spark_events-0.1.0-py3-none-any.whl otlp,database
# Prints the lines for spark-defaults.conf. Variables: PYTHON: Python 3.10 or newer. PREFIX: the installation folder.
set -euo pipefail

prefix=${PREFIX:-/opt/spark-events}
"${PYTHON:-python3}" -m venv "$prefix"
"$prefix/bin/python" -m pip install --quiet --disable-pip-version-check "$1${2:+[$2]}"
"$prefix/bin/spark-events" conf --install "$prefix"
