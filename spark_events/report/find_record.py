"""A program that reads only the place of a failure of data, and prints the bad record's position, not its content."""

from __future__ import annotations

import string

import msgspec

from spark_events.report.report_model import ProblemCard
from spark_events.translate.offsets import partitions

__all__ = ["program_of"]

_LINES = string.Template('''"""Find the lines of one file that cannot be parsed. Run: spark-submit find.py"""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

FILE = $file
# The schema of your job, such as "id INT, amount DOUBLE"; None: only the form of the lines is checked.
SCHEMA = None

spark = SparkSession.builder.master("local[1]").appName("find-record").getOrCreate()
known = spark.read.$format(FILE).drop("_corrupt_record").schema
fields = SCHEMA or ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in known)
options = {"columnNameOfCorruptRecord": "_corrupt_record"}
row = F.from_$format("value", f"{fields}, _corrupt_record STRING", options)
lines = spark.read.text(FILE).coalesce(1).withColumn("line", F.monotonically_increasing_id() + 1)
for bad in lines.where(row["_corrupt_record"].isNotNull()).select("line").toLocalIterator():
    print(f"{FILE}: line {bad.line}")
spark.stop()
''')
_FILE = string.Template('''"""Read one file, as the failed task did. Run: spark-submit find.py"""

from pyspark.sql import SparkSession

FILE = $file

spark = SparkSession.builder.master("local[1]").appName("find-record").getOrCreate()
print(f"{FILE}: {spark.read.load(FILE, format=$format).rdd.count()} rows could be read")
spark.stop()
''')
_KAFKA = string.Template('''"""Find the first record that fails, from the offsets at which the failed batch$batch began.

Run: KAFKA=broker:9092 spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION find.py
"""

import json
import os

from pyspark.sql import SparkSession

START = $offsets


def process(value):
    """Do with the value (bytes) what your job does; replace the body."""
    json.loads(value)


spark = SparkSession.builder.master("local[1]").appName("find-record").getOrCreate()
records = (
    spark.read.format("kafka")
    .option("kafka.bootstrap.servers", os.environ["KAFKA"])
    .option("assign", json.dumps({topic: sorted(map(int, offsets)) for topic, offsets in START.items()}))
    .option("startingOffsets", json.dumps(START))
    .load()
    .select("topic", "partition", "offset", "value")
)
for record in records.toLocalIterator():
    try:
        process(record.value)
    except Exception as error:
        print(f"{record.topic}, partition {record.partition}, offset {record.offset}: {type(error).__name__}")
        break
spark.stop()
''')
_RECORD = string.Template('''"""Read the one record that the failure names.

Run: KAFKA=broker:9092 spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION find.py
"""

import json
import os

from pyspark.sql import SparkSession

TOPIC = $topic
PARTITION = $partition
OFFSET = $offset


def process(value):
    """Do with the value (bytes) what your job does; replace the body."""
    json.loads(value)


spark = SparkSession.builder.master("local[1]").appName("find-record").getOrCreate()
place = f"{TOPIC}, partition {PARTITION}, offset {OFFSET}"
try:
    found = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", os.environ["KAFKA"])
        .option("assign", json.dumps({TOPIC: [PARTITION]}))
        .option("startingOffsets", json.dumps({TOPIC: {PARTITION: OFFSET}}))
        .option("endingOffsets", json.dumps({TOPIC: {PARTITION: OFFSET + 1}}))
        .load()
        .select("value")
        .collect()
    )
    for record in found:
        process(record.value)
    print(f"{place}: {'no error' if found else 'no record'}")
except Exception as error:
    print(f"{place}: {type(error).__name__}")
spark.stop()
''')
_BY_LINE = ("json", "csv")
_FORMATS = {"jsonl": "json", "ndjson": "json", "tsv": "csv"}


def program_of(problem: ProblemCard) -> str | None:
    """Return the program; None if the failure names neither a file nor offsets of Kafka."""
    if problem.data_file is not None:
        form = _format_of(problem.data_file)
        template = _LINES if form in _BY_LINE else _FILE
        return template.substitute(file=repr(problem.data_file), format=form if form in _BY_LINE else repr(form))
    if (record := problem.data_record) is not None:
        return _RECORD.substitute(topic=repr(record.topic), partition=record.partition, offset=record.offset)
    offsets = _kafka_offsets(problem.committed_offsets)
    if not offsets:
        return None
    batch = "" if problem.failed_batch is None else f" {problem.failed_batch}"
    return _KAFKA.substitute(offsets=repr(offsets), batch=batch)


def _format_of(file: str) -> str:
    """Return Spark's name of a file's format, by its name: the last part that is not a compression."""
    parts = file.rpartition("/")[2].lower().split(".")[1:]
    known = [_FORMATS.get(part, part) for part in parts if part not in ("gz", "bz2", "zst", "zstd", "snappy", "lz4")]
    return known[-1] if known else "text"


def _kafka_offsets(committed: str | None) -> dict[str, dict[str, int]]:
    """Return the offsets at which the batch after the last committed one begins; empty for other sources."""
    try:
        sources = msgspec.json.decode(committed or "[]", type=list[str | None])
        raw = [one.encode() for one in sources if one]
        found = [msgspec.json.decode(one, type=dict[str, dict[str, int]]) for one in raw if partitions(one)]
    except msgspec.MsgspecError:
        return {}
    return {topic: offsets for one in found for topic, offsets in one.items()}
