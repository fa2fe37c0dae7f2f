#!/usr/bin/env bash
# Bootstrap action for EMR 7 on EC2: emr-bootstrap.sh s3://BUCKET/spark_events-0.1.0-py3-none-any.whl [EXTRAS]
# Runs on every node before Spark is installed. Afterwards, enable.sh, the first step, changes spark-defaults.conf.
set -euo pipefail

prefix=${PREFIX:-/opt/spark-events}
python=${PYTHON:-python3.11} # the system's Python is 3.9
command -v "$python" >/dev/null || sudo dnf install -y -q python3.11 python3.11-pip

folder=$(mktemp -d)
aws s3 cp --quiet "$1" "$folder/"
sudo "$python" -m venv "$prefix"
sudo "$prefix/bin/python" -m pip install --quiet --disable-pip-version-check "$folder/${1##*/}${2:+[$2]}"
rm -r "$folder"
