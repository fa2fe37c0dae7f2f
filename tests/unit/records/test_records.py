"""Tests of record decoding: known lines become typed records, and unknown lines keep their number."""

from __future__ import annotations

import json

import pytest
from fakes import application_end, application_start, decoded, goodbye, hello, query_progress, query_started
from hypothesis import given
from hypothesis import strategies as st

from spark_events.records import types as r


@pytest.mark.parametrize("key", ["event", "anything"])
def test_a_line_nested_too_deeply_is_unknown(key: str) -> None:
    """A line that is nested too deeply becomes an unknown record: an error would recur in every later sidecar."""
    deep = b"[" * 100_000 + b"]" * 100_000
    line = b'{"kind":"added","seq":3,"%s":{"id":"1","name":"N","class_scope":"c","attributes":{"a":%s}}}'
    assert type(r.decode(line % (key.encode(), deep))) is r.Unknown


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (hello({"events.x": "1"}), r.Hello),
        (goodbye(), r.Goodbye),
        (application_start(), r.ApplicationStart),
        (application_end(), r.ApplicationEnd),
        (application_end(exit_code=3), r.ApplicationEnd),
        ({"kind": "jvm_shutdown"}, r.JvmShutdown),
        ({"kind": "dropped", "records": {"job_end": 3}}, r.Dropped),
        ({"kind": "job_start", "job_id": 1, "time": 2, "properties": {"a": "b"}}, r.JobStart),
        ({"kind": "job_end", "job_id": 1, "time": 2, "failure": {"chain": [{"type": "a.B"}]}}, r.JobEnd),
        ({"kind": "application_totals", "time": 2, "totals": {"tasks": 1}}, r.ApplicationTotals),
        (
            {"kind": "sql_execution_start", "execution_id": 1, "time": 2, "plan": [{"name": "Range"}]},
            r.SqlExecutionStart,
        ),
        ({"kind": "statement_timed_out", "statement_id": "a", "time": 2}, r.StatementTimedOut),
        ({"kind": "sql_execution_end", "execution_id": 1, "time": 2, "error": "x"}, r.SqlExecutionEnd),
        (query_started(), r.QueryStarted),
        ({"kind": "query_idle", "id": "q", "run_id": "r", "timestamp": "t"}, r.QueryIdle),
        ({"kind": "query_terminated", "id": "q", "run_id": "r", "exception": None}, r.QueryTerminated),
        (query_progress(), r.QueryProgress),
        ({"kind": "restored", "record": application_start()}, r.Restored),
    ],
)
def test_each_kind_has_its_type(line: dict[str, object], kind: type[r.Record]) -> None:
    """Every kind of record that the shim sends has a type with the same name, a number and a timestamp."""
    record = decoded({**line, "seq": 7, "at": 8})
    assert type(record) is kind
    assert (record.seq, record.at) == (7, 8)


def test_fields_of_a_newer_shim_are_skipped() -> None:
    record = decoded({**query_progress(3, batchDuration=7, sources=[{"metrics": {"a": "b"}}]), "seq": 2, "new": [1]})
    assert record.progress.batch_id == 3
    assert record.progress.sources[0].num_input_rows == 0


@pytest.mark.parametrize(
    "line",
    [
        {"seq": 5, "kind": "of_the_future", "whatever": {"deep": [1]}},
        {"seq": 5, "kind": "job_end", "job_id": "seven", "time": 1},
        {"seq": 5, "kind": "job_end"},
        {"seq": 5, "kind": "query_progress", "progress": {"id": "q"}},
        {"seq": 5},
    ],
    ids=["kind", "type", "missing", "progress", "no-kind"],
)
def test_unknown_record_keeps_its_number(line: dict[str, object]) -> None:
    """An unknown record keeps its number. Without an acknowledgement, the driver would keep this record forever."""
    record = decoded(line)
    assert isinstance(record, r.Unknown)
    assert record.seq == 5


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"null", b"7", b'{"kind":7}', b'{"seq":"1"}', b"\xff\xfe"])
def test_line_without_record_is_unknown(line: bytes) -> None:
    assert r.decode(line) == r.Unknown()


def test_invalid_utf_8_affects_one_record_only() -> None:
    """A record with invalid UTF-8 becomes unknown but keeps its number, which precedes the invalid bytes."""
    line = b'{"seq":4,"kind":"query_terminated","id":"q","run_id":"r","exception":"\xff"}'
    assert r.decode(line) == r.Unknown(seq=4, kind="query_terminated")


@given(st.binary(max_size=200))
def test_no_line_makes_the_decoder_raise(line: bytes) -> None:
    """Decoding returns a record for any bytes."""
    assert r.decode(line) is not None


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.dictionaries(st.text(), x)))
def test_a_restored_record_is_kept_unchanged(anything: object) -> None:
    """The content of a restored line is decoded separately, so damage in the content affects only the content."""
    restored = decoded({"kind": "restored", "record": anything})
    assert isinstance(restored, r.Restored)
    assert json.loads(bytes(restored.record)) == anything
    assert r.decode(restored.record) is not None
