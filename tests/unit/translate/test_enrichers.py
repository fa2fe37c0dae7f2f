"""Tests of failure labels, and of user-defined failure enrichers."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import pytest

from spark_events.config import Settings
from spark_events.errors import ConfigError
from spark_events.records.types import ExceptionLink, Failure
from spark_events.translate.enrichers import FailureContext, TypeEnricher
from spark_events.translate.failures import Diagnostics
from spark_events.translate.translation_config import FailureConfig, read
from spark_events.translate.user_code import UserCode


class Team:
    """User-defined failure enricher."""

    def enrich(self, failure: FailureContext) -> Mapping[str, str]:
        return {"team": "shop", "root": failure.root_type}


class Broken:
    def enrich(self, failure: FailureContext) -> Mapping[str, str]:
        raise RuntimeError("no database")


class Exits:
    def enrich(self, failure: FailureContext) -> Mapping[str, str]:
        sys.exit("no licence")


class NoEnricher:
    pass


class NeedsAnArgument(Team):
    def __init__(self, owners: str) -> None:
        self.owners = owners


class CannotBeMade(Team):
    def __init__(self) -> None:
        raise RuntimeError("no database")


class ExitsAtOnce(Team):
    def __init__(self) -> None:
        sys.exit("no licence")


PYTHON = 'a.B: Traceback (most recent call last):\n  File "/app/job.py", line 1, in f\n    raise x\n'


@pytest.mark.parametrize(
    ("text", "label"),
    [
        (PYTHON + "ValueError: bad\n", "USER"),
        (PYTHON + "MemoryError\n", "SYSTEM"),
        ("org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero.", "USER"),
        ("java.lang.OutOfMemoryError: Java heap space", "SYSTEM"),
        ("java.io.IOException: No space left on device", "SYSTEM"),
        ("org.apache.spark.memory.SparkOutOfMemory: Unable to acquire 65536 bytes of memory, got 0", "SYSTEM"),
        ("org.apache.spark.SparkException: [INTERNAL_ERROR] Eh", None),
        ("[SOME_CLASS] wrapped\nCaused by: java.lang.NoSuchMethodError: x", "SYSTEM"),
        ("java.lang.NullPointerException", None),
    ],
)
def test_the_type_label_names_the_responsible_side(text: str, label: str | None) -> None:
    """The label is USER for code, query and data, SYSTEM for the environment, and missing for an unknown class."""
    assert Diagnostics([TypeEnricher()]).of_text(text).attributes.get("failure.label.type") == label


def test_several_enrichers_add_up() -> None:
    """The labels of all enrichers become attributes of the failure."""
    attributes = Diagnostics([TypeEnricher(), Team()]).of_text("java.lang.OutOfMemoryError: x").attributes
    assert attributes["failure.label.team"] == "shop"
    assert attributes["failure.label.root"] == "java.lang.OutOfMemoryError"
    assert attributes["failure.label.type"] == "SYSTEM"


def test_raising_enricher_loses_only_its_own_labels(caplog: pytest.LogCaptureFixture) -> None:
    """If an enricher raises, the failure is reported without the enricher's labels, and a warning is logged."""
    attributes = Diagnostics([Broken(), Team()]).of_text("java.lang.Error: x").attributes
    assert attributes["failure.label.team"] == "shop"
    assert (
        "failure enricher Broken failed, so the event lacks its labels; correct its code: RuntimeError('no database')"
        in caplog.text
    )


def test_exiting_enricher_does_not_end_the_translation(caplog: pytest.LogCaptureFixture) -> None:
    attributes = Diagnostics([Exits(), Team()]).of_text("java.lang.Error: x").attributes
    assert attributes["failure.label.team"] == "shop"
    assert (
        "failure enricher Exits failed, so the event lacks its labels; correct its code: SystemExit('no licence')"
        in caplog.text
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("NeedsAnArgument", r"TypeError: .*missing 1 required positional argument: 'owners'"),
        ("CannotBeMade", "RuntimeError: no database"),
        ("ExitsAtOnce", "SystemExit: no licence"),
    ],
)
def test_an_enricher_that_cannot_be_created_is_an_invalid_setting(name: str, reason: str) -> None:
    given = f"{__name__}:{name}"
    settings = Settings.of({"events.failure.enrichers": given})
    read(settings)
    with pytest.raises(ConfigError, match=rf"events\.failure\.enrichers: .*\({given} cannot be created: {reason}\)"):
        settings.check()


def test_enrichers_are_made_from_their_names() -> None:
    """A setting selects an enricher by its ``type`` or by ``package.module:Class``."""
    settings = Settings.of({"events.failure.enrichers": f"type, {__name__}:Team"})
    enrichers = read(settings).failure.enrichers
    assert [type(enricher) for enricher in enrichers] == [TypeEnricher, Team]
    assert [type(enricher) for enricher in FailureConfig().enrichers] == [TypeEnricher]


@pytest.mark.parametrize("name", ["typ", "no.such.module:X", f"{__name__}:Missing", f"{__name__}:NoEnricher"])
def test_a_name_without_an_enricher_is_an_invalid_setting(name: str) -> None:
    """The message about an unknown enricher contains the key, the value and the allowed values."""
    settings = Settings.of({"events.failure.enrichers": name})
    read(settings)
    with pytest.raises(ConfigError, match=r"events\.failure\.enrichers: given .*, expected type, or package"):
        settings.check()


@pytest.mark.parametrize(
    ("state", "label"),
    [("53200", "SYSTEM"), ("54000", "USER"), ("58030", None), ("08000", "SYSTEM"), ("22012", "USER")],
)
def test_a_sqlstate_decides_the_label(state: str, label: str | None) -> None:
    """The SQLSTATE decides the class and so the label; an I/O error (58) does not tell its cause."""
    found = Diagnostics([TypeEnricher()]).of_text(f"a.B: [SOME_CLASS] x. SQLSTATE: {state}")
    assert found.attributes.get("failure.label.type") == label


def test_an_error_in_the_user_s_jvm_code_is_a_user_error_with_location() -> None:
    """If Spark called the user's JVM code, the location is the innermost frame in the main class's organisation."""
    trace = (
        "org.apache.spark.SparkException: Job aborted\n\tat org.apache.spark.A.b(A.scala:1)\n"
        "Caused by: java.util.NoSuchElementException: None.get\n"
        "\tat scala.None$.get(Option.scala:627)\n"
        "\tat java.base/java.util.Optional.map(Optional.java:1)\n"
        "\tat com.acme.Orders$.parse(Orders.scala:12)\n"
        "\tat com.acme.Orders$.main(Orders.scala:5)\n"
        "\tat org.apache.spark.executor.Executor.run(Executor.scala:1)\n"
    )
    diagnostics = Diagnostics([TypeEnricher()])
    diagnostics.code = UserCode(main_class="com.acme.jobs.Main")
    attributes = diagnostics.of_text(trace).attributes
    assert attributes["failure.label.type"] == "USER"
    assert attributes["failure.location"] == "Orders.scala:12 in com.acme.Orders$.parse"


def test_error_in_spark_code_is_not_a_user_error() -> None:
    """Even if the trace contains a user's frame outside Spark's, an error in Spark's code is not a user error."""
    trace = (
        "java.lang.NullPointerException\n\tat org.apache.spark.A.b(A.scala:1)\n\tat com.acme.Main.main(Main.java:3)\n"
    )
    diagnostics = Diagnostics([TypeEnricher()])
    diagnostics.code = UserCode(main_class="com.acme.Main")
    attributes = diagnostics.of_text(trace).attributes
    assert attributes["failure.class"] == "UNKNOWN"
    assert "failure.label.type" not in attributes
    assert "failure.location" not in attributes


def test_text_in_brackets_is_not_an_error_class() -> None:
    """A bracketed word is an error class only if it contains an underscore. A cause's class replaces its wrapper's."""
    assert Diagnostics().of_text("a.B: [ERROR] [ORDERS] bad").error_type == "a.B"
    wrapped = "a.B: [TASK_WRITE_FAILED] x\nCaused by: a.C: [DIVIDE_BY_ZERO] y"
    assert Diagnostics().of_text(wrapped).error_type == "DIVIDE_BY_ZERO"
    legacy = "a.B: [_LEGACY_ERROR_TEMP_2052] x\nCaused by: a.C: [CAST_INVALID_INPUT] y"
    assert Diagnostics().of_text(legacy).error_type == "CAST_INVALID_INPUT"


def test_error_class_and_sqlstate_come_from_one_exception() -> None:
    """Error class and SQLSTATE come from the same exception. A wrapper's SQLSTATE does not apply to its cause."""
    chain = [
        ExceptionLink("a.B", "x", "TASK_WRITE_FAILED", "58030"),
        ExceptionLink("a.C", "y", "DIVIDE_BY_ZERO", "22012"),
    ]
    found = Diagnostics().of(Failure(chain))
    assert (found.error_type, found.attributes["failure.sql_state"]) == ("DIVIDE_BY_ZERO", "22012")


GPU = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most "
    "recent failure: Lost task 0.3 in stage 3.0 (TID 7) (10.0.0.9 executor 2): {type}: {message}\n"
    "\tat {type}.raise(Memory.java:1)\n"
    "\tat com.nvidia.spark.rapids.RmmRapidsRetryIterator$.withRetry(RmmRapidsRetryIterator.scala:1)\n"
    "\tat ai.rapids.cudf.Table.join(Table.java:1)\n"
    "\tat com.acme.Orders$.parse(Orders.scala:12)\n"
    "\tat org.apache.spark.rdd.RDD.iterator(RDD.scala:1)\n\nDriver stacktrace:\n"
    "\tat com.acme.Orders$.main(Orders.scala:5)\n"
)


@pytest.mark.parametrize(
    ("kind", "message", "label"),
    [
        ("com.nvidia.spark.rapids.jni.GpuSplitAndRetryOOM", "could not split inputs and retry", "SYSTEM"),
        ("com.nvidia.spark.rapids.jni.GpuRetryOOM", "injected", "SYSTEM"),
        ("com.nvidia.spark.rapids.jni.CpuRetryOOM", "", "SYSTEM"),
        ("org.apache.spark.memory.SparkOutOfMemoryError", "Unable to acquire 9 bytes", "SYSTEM"),
        ("ai.rapids.cudf.CudfException", "std::bad_alloc: out_of_memory: CUDA error", "SYSTEM"),
        ("io.acme.OutOfMemoryException", "Failure allocating buffer", "SYSTEM"),
        ("com.acme.ZoomException", "no room", "USER"),
    ],
)
def test_memory_errors_of_plugins_are_recognized_by_name(kind: str, message: str, label: str) -> None:
    """Memory errors raised by plugins are recognized by name. The location is the user's line that calls the plugin."""
    diagnostics = Diagnostics([TypeEnricher()])
    diagnostics.code = UserCode("org.apache.spark.deploy.SparkSubmit --master yarn --class com.acme.Orders orders.jar")
    attributes = diagnostics.of_text(GPU.format(type=kind, message=message)).attributes
    assert attributes["failure.label.type"] == label
    if not kind.startswith(("org.apache.spark.", "com.acme.")):
        assert attributes["failure.location"] == "Orders.scala:12 in com.acme.Orders$.parse"
    diagnostics.code = UserCode("org.apache.spark.deploy.SparkSubmit --master yarn orders.py")
    assert "failure.location" not in diagnostics.of_text(GPU.format(type=kind, message=message)).attributes


@pytest.mark.parametrize(
    ("cause", "error_class"),
    [
        ("java.lang.RuntimeException: file:/x.orc is not a Parquet file. Expected magic number at tail", None),
        ("org.apache.orc.FileFormatException: Malformed ORC file file:/x.parquet. Invalid postscript.", None),
        ("org.apache.orc.impl.SchemaEvolution$IllegalEvolutionException: ORC does not support type conversion", None),
        (
            "org.apache.spark.sql.execution.datasources.SchemaColumnConvertNotSupportedException: column: [id]",
            "FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH",
        ),
    ],
)
def test_a_file_of_another_format_or_schema_is_a_user_error(cause: str, error_class: str | None) -> None:
    """A file with an unexpected format or schema is a user error, although Spark 4 uses an I/O error's SQLSTATE."""
    named = f"[{error_class or 'FAILED_READ_FILE.NO_HINT'}] Encountered error while reading file x. SQLSTATE: KD001"
    for message in (named, "Encountered error while reading file x."):
        outer = f"org.apache.spark.SparkException: {message}\n\tat a.B.c(B.java:1)\n"
        text = f"{outer}Caused by: {cause}\n\tat a.D.e(D.java:1)\n"
        found = Diagnostics([TypeEnricher()]).of_text(text)
        assert found.attributes["failure.label.type"] == "USER"
        assert found.attributes["failure.root_cause"] == cause


def test_an_unreadable_file_is_not_a_user_error() -> None:
    """A file that cannot be read because of an I/O error is not a user error, despite the same error class."""
    text = (
        "org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error. SQLSTATE: KD001\n"
        "\tat a.B.c(B.java:1)\nCaused by: java.io.IOException: Connection reset\n\tat a.D.e(D.java:1)\n"
    )
    assert Diagnostics([TypeEnricher()]).of_text(text).attributes["failure.label.type"] == "SYSTEM"


@pytest.mark.parametrize(
    "message",
    [
        "Job 26 cancelled as part of cancellation of all jobs",
        "Job 26 cancelled part of cancelled job group nightly",
        "[SPARK_JOB_CANCELLED] Job 26 cancelled as part of cancellation of all jobs SQLSTATE: XXKDA",
    ],
)
def test_a_cancelled_job_has_no_label(message: str) -> None:
    """A cancelled job has a class but no label, because neither the author nor the operator has to act."""
    found = Diagnostics([TypeEnricher()]).of_text(f"org.apache.spark.SparkException: {message}\n\tat a.B.c(B.java:1)\n")
    assert found.attributes["failure.class"] == "CANCELLED"
    assert "failure.label.type" not in found.attributes
