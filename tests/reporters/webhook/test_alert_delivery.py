"""Tests of alerts with real receivers: many keys, partial success, rejected requests, deferred recoveries."""

from __future__ import annotations

import json
from pathlib import Path

from fakes import eventually

from reporters.peers.alertmanager import incidents
from reporters.peers.webhook import Answer, Receiver, Request
from reporters.running import IMPATIENT, Running
from reporters.webhook.sending import KEY, NOW, alert, recovery

GROUPS = [f"shop/group={number}/failure" for number in range(200)]
DEDUP_KEYS = [f"spark-events:{key}" for key in ("shop/failure", *GROUPS)]


def settings(format: str, folder: Path) -> dict[str, str]:
    routing = {"routing-key": "R"} if format == "pagerduty" else {}
    return {"format": format, "alerts.directory": str(folder), **routing, **IMPATIENT}


def limited(every: int, refused: str = "") -> Receiver:
    """Return a receiver that throttles requests, as a rate limit does, and always refuses one key."""
    seen: list[str] = []

    def decide(request: Request) -> Answer:
        key = request.json["dedup_key"]
        seen.append(key)
        if key == refused:
            return Answer(400)
        return Answer(429, headers={"Retry-After": "0"}) if len(seen) % every == 0 else Answer()

    return Receiver(decide=decide)


def test_pagerduty_closes_all_keys_of_a_recovery_despite_its_rate_limit(tmp_path: Path) -> None:
    """A retry continues with the remaining keys, so each key is resolved once."""
    with limited(60) as receiver, Running("webhook", {"url": receiver.url, **settings("pagerduty", tmp_path)}) as run:
        run.deliver([recovery(NOW, "shop/failure", *GROUPS)])
        assert (run.counters.delivered, run.counters.failures) == (1, 3)
        assert [body["dedup_key"] for body in receiver.bodies()] == DEDUP_KEYS


def test_pagerduty_closes_known_open_alerts_first(tmp_path: Path) -> None:
    with Receiver() as receiver, Running("webhook", {"url": receiver.url, **settings("pagerduty", tmp_path)}) as run:
        run.deliver([alert(NOW, GROUPS[150]), recovery(NOW, "shop/failure", *GROUPS)])
        resolved = [body["dedup_key"] for body in receiver.bodies()[1:]]
    assert resolved[0] == f"spark-events:{GROUPS[150]}"
    assert sorted(resolved) == sorted(DEDUP_KEYS)


def test_a_refused_key_does_not_keep_the_other_keys_open(tmp_path: Path) -> None:
    refused = DEDUP_KEYS[7]
    with (
        limited(60, refused) as receiver,
        Running("webhook", {"url": receiver.url, **settings("pagerduty", tmp_path)}) as run,
    ):
        run.deliver([recovery(NOW, "shop/failure", *GROUPS)])
        assert (run.counters.delivered, run.counters.lost) == (0, 1)
        assert [body["dedup_key"] for body in receiver.bodies()] == [key for key in DEDUP_KEYS if key != refused]


def test_a_killed_process_loses_no_key(tmp_path: Path) -> None:
    """The event is delivered again, from the first key."""
    with limited(60) as receiver:
        slow = {**settings("pagerduty", tmp_path), "retry.initial": "1h", "retry.max": "1h"}
        with Running("webhook", {"url": receiver.url, **slow}) as run:
            run.put([recovery(NOW, "shop/failure", *GROUPS)])
            run.await_failures()
            run.stop(0)
        assert len(receiver.bodies()) == 59
        with Running("webhook", {"url": receiver.url, **settings("pagerduty", tmp_path)}) as run:
            run.deliver([recovery(NOW, "shop/failure", *GROUPS)])
        assert {body["dedup_key"] for body in receiver.bodies()} == set(DEDUP_KEYS)


def test_alertmanager_closes_all_keys_in_one_request(tmp_path: Path) -> None:
    with Receiver() as receiver, Running("webhook", {"url": receiver.url, **settings("alertmanager", tmp_path)}) as run:
        run.deliver([recovery(NOW, "shop/failure", *GROUPS)])
        (alerts,) = receiver.bodies()
    labels = {(one["labels"]["incident_key"], one["labels"]["severity"]) for one in alerts}
    assert labels == {(key, severity) for key in ("shop/failure", *GROUPS) for severity in ("warning", "critical")}


def test_a_reporter_sends_a_deferred_recovery_when_it_closes(tmp_path: Path) -> None:
    with Receiver() as receiver:
        with Running("webhook", {"url": receiver.url, **settings("pagerduty", tmp_path)}) as run:
            run.deliver([event for _ in range(5) for event in (alert(), recovery())])
            assert len(receiver.bodies()) == 3
        assert [one.is_open for one in incidents(receiver.bodies())] == [False, False]


def test_a_recovery_that_could_not_be_sent_is_sent_by_the_next_run(tmp_path: Path) -> None:
    """The next run sends the recovery when the cooldown has ended; here, the clock was set ahead meanwhile."""
    with Receiver() as receiver:
        keys = {"url": receiver.url, **settings("pagerduty", tmp_path), "cooldown": "1h"}
        with Running("webhook", keys) as run:
            run.deliver([event for _ in range(2) for event in (alert(), recovery())])
            receiver.stop()
        receiver.start()
        (file,) = tmp_path.iterdir()
        stored = json.loads(file.read_bytes())
        assert (stored["key"], stored["phase"]) == (KEY, "recovered")
        file.write_bytes(json.dumps({**stored, "quiet_since": stored["quiet_since"] - 3700}).encode())
        with Running("webhook", keys) as run:
            run.deliver([alert(NOW, "other/failure")])
        actions = {(body["event_action"], body["dedup_key"]) for body in receiver.bodies()[3:]}
        assert ("resolve", f"spark-events:{KEY}") in actions


def test_an_alert_is_stored_when_it_is_accepted(tmp_path: Path) -> None:
    """For a rejected alert, a chat receives no message about the recovery."""
    script = [Answer(400), Answer(503), Answer(503)]
    with Receiver(script) as receiver, Running("webhook", {"url": receiver.url, **settings("slack", tmp_path)}) as run:
        run.deliver([alert()])
        run.deliver([recovery()])
        assert receiver.bodies() == []
        run.deliver([alert()])
        assert (run.counters.failures, len(receiver.bodies())) == (3, 1)


def test_a_reporter_in_its_own_process_defers_a_recovery_too(tmp_path: Path) -> None:
    keys = {**settings("pagerduty", tmp_path), "isolation": "process", "cooldown": "1s"}
    with Receiver() as receiver, Running("webhook", {"url": receiver.url, **keys}) as run:
        run.deliver([event for _ in range(2) for event in (alert(), recovery())])
        # Without further events, the recovery follows when the cooldown has ended.
        eventually(lambda: not any(one.is_open for one in incidents(receiver.bodies())))
        assert [one.is_open for one in incidents(receiver.bodies())] == [False, False]
