#!/usr/bin/env bash
# Create a Glue 5 job with spark-events: glue-job.sh NAME ROLE s3://BUCKET/FOLDER SCRIPT.py WHEEL
# Requirements: the AWS command line, and spark-events on this machine, which provides the path of the jar.
set -euo pipefail

name=$1 role=$2 folder=${3%/} script=$4 wheel=$5
jar=$(spark-events conf --jar)
for file in "$script" "$wheel" "$jar"; do
    aws s3 cp --quiet "$file" "$folder/${file##*/}"
done

# Glue accepts one --conf argument; its value contains all further settings.
arguments=$(
    cat <<END
{
  "--additional-python-modules": "$folder/${wheel##*/}",
  "--extra-jars": "$folder/${jar##*/}",
  "--conf": "spark.extraListeners=io.sparkevents.EventsListener --conf spark.events.reporter.console.type=log"
}
END
)
aws glue create-job --name "$name" --role "$role" --glue-version 5.0 --worker-type G.1X --number-of-workers 2 \
    --command "Name=glueetl,ScriptLocation=$folder/${script##*/},PythonVersion=3" --default-arguments "$arguments"
