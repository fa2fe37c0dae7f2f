"""Tests of the classes of Spark's error conditions, against the lists in the jars of all supported versions."""

from __future__ import annotations

import re

import pytest
from fakes import ROOT
from missing import missing
from spark_conditions import TABLE, conditions, environments, table

from spark_events.failures import conditions as rules
from spark_events.failures.classes import CLASSES
from spark_events.failures.conditions import SILENT_CONDITION, class_of_condition, states
from spark_events.failures.kinds import OUT_OF_MEMORY

#: Conditions that the tables name although Spark's jars do not list them: those of PySpark, and of older versions.
_ELSEWHERE = re.compile(
    r"ARROW_CONVERSION_FAILURE|UNION_COLUMN_TYPE_MISMATCH|CANNOT_(?:DETERMINE_TYPE|INFER_EMPTY_SCHEMA|MERGE_TYPE)"
    r"|FIELD_DATA_TYPE_UNACCEPTABLE\w*|RESULT_TYPE_MISMATCH_FOR_ARROW_UDF|(?:MASTER|CONNECT)_URL_NOT_SET"
    r"|PYTHON_VERSION_MISMATCH|JAVA_GATEWAY_EXITED|PACKAGE_NOT_INSTALLED|UNSUPPORTED_PACKAGE_VERSION"
    r"|EXECUTE_BROADCAST_TIMEOUT|CANNOT_ACQUIRE_MEMORY"
)


@pytest.mark.parametrize("environment", environments(), ids=lambda path: path.name)
def test_every_condition_has_a_decision(environment: object) -> None:
    """Each condition and subcondition of each version has a class, or is known to only wrap another error."""
    listed = conditions(environment)  # type: ignore[arg-type]
    assert len(listed) > 500
    allowed = {*CLASSES, SILENT_CONDITION, OUT_OF_MEMORY}
    for name, facts in listed.items():
        for full in (name, *(f"{name}.{sub}" for sub in facts.get("subClass") or {})):
            assert class_of_condition(full, facts.get("sqlState")) in allowed, full
            # An event log of Spark 3.5 contains the condition without its SQLSTATE.
            assert class_of_condition(full, None) in allowed, full


def test_the_table_is_derived_from_the_jars() -> None:
    if len(environments()) < 3:
        missing("the jars of all versions of Spark: make environments")
    assert TABLE.read_text(encoding="utf-8") == table(), "run .venv/bin/python tests/spark_conditions.py"


def test_the_rules_name_only_conditions_that_exist() -> None:
    """A condition with its own rule exists in one of the versions, so that a misspelt name is detected."""
    known = states().keys()
    unknown = {name for name in rules._BY_NAME if name.partition(".")[0] not in known}
    assert {name for name in unknown if not _ELSEWHERE.fullmatch(name)} == set()
    assert (ROOT / "spark_events" / "failures" / "conditions.tsv").stat().st_size < 40_000


@pytest.mark.parametrize(
    ("name", "state", "expected"),
    [
        ("FAILED_JDBC.CONNECTION", "HV000", "EXTERNAL_SYSTEM"),
        ("FAILED_JDBC.ALTER_TABLE", "HV000", SILENT_CONDITION),
        ("CONCURRENT_STREAM_LOG_UPDATE", None, "CONFIGURATION"),
        ("CONCURRENT_QUERY", None, "CONFIGURATION"),
        ("FAILED_READ_FILE.FILE_NOT_EXIST", "KD001", "MISSING_FILE_OR_TABLE"),
        ("SOME_CONDITION_OF_TOMORROW", "22003", "DATA_ERROR"),
        ("SOME_CONDITION_OF_TOMORROW", "42P01", "MISSING_FILE_OR_TABLE"),
        ("DELTA_CONCURRENT_APPEND", "2D521", "EXTERNAL_SYSTEM"),
        ("ORDER_HAS_NO_CURRENCY", None, None),
    ],
)
def test_conditions_are_classified(name: str, state: str | None, expected: str | None) -> None:
    assert class_of_condition(name, state) == expected
