"""Tests of the place that a failure of data names, with the messages of Spark 3.5 to 4.3 and of Kafka's client."""

from __future__ import annotations

import pytest

from spark_events.translate.failures import Diagnostics

_TASK = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 3 in stage 2.0 failed 1 times, most recent"
    " failure: Lost task 3.0 in stage 2.0 (TID 9) (h executor 1): "
)
_CAUSE = "Caused by: com.fasterxml.jackson.core.JsonParseException: Unexpected character\n"
_READ = "org.apache.spark.SparkException: "
_ORDERS = {"topic": "orders-eu", "topic_partition": 0, "offset": 217}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (
            f"{_TASK}{_READ}Encountered error while reading file file:///in/a.json. Details:\n{_CAUSE}",
            {"file": "file:///in/a.json", "partition": 3},
        ),
        (
            f"{_TASK}{_READ}[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///in/a.json. "
            f" SQLSTATE: KD001\n{_CAUSE}",
            {"file": "file:///in/a.json", "partition": 3},
        ),
        (
            f"{_TASK}org.apache.kafka.common.KafkaException: Received exception when fetching the next record from"
            " orders-eu-0. If needed, please seek past the record to continue consumption.\n\tat a.B.c(B.java:1)\n"
            "Caused by: org.apache.kafka.common.errors.CorruptRecordException: Record batch for partition orders-eu-0"
            " at offset 217 is invalid, cause: Record is corrupt (stored crc = 1, computed crc = 2)\n",
            {**_ORDERS, "partition": 3},
        ),
        (
            "org.apache.spark.SparkException: [KAFKA_MALFORMED_RECORD_TIMESTAMP] Record at topic orders-eu partition 0"
            " offset 217 has timestamp value 9 that overflows when converting to Spark's microsecond-precision"
            " TimestampType. SQLSTATE: 22008\n",
            _ORDERS,
        ),
        (
            f"{_READ}[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] Some data may have been lost. Reason:"
            " Could not read records in offset [217, 300) for topic partition orders-eu-0 with consumer group g."
            " SQLSTATE: 22000\n",
            _ORDERS,
        ),
        (f"{_TASK}{_READ}[MALFORMED_RECORD_IN_PARSING] Malformed records\n", {"partition": 3}),
    ],
)
def test_a_failure_of_data_names_its_place(text: str, place: dict[str, object]) -> None:
    attributes = Diagnostics().of_text(text).attributes
    prefix = "failure.data."
    assert {key.removeprefix(prefix): value for key, value in attributes.items() if key.startswith(prefix)} == place
