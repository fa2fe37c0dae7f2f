"""Property tests: the memory of closed alerts changes only the number of openings in a message, and that is right."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from reporters.webhook.sending import KEY, MINUTE, Sending

from spark_events.reporters.alerts.slack import SLACK
from spark_events.reporters.alerts.states import AlertsConfig

CONFIG = AlertsConfig()
KEYS = (KEY, "shop/query=clicks/overdue")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("fail", "recover", "next run")),
        st.sampled_from(KEYS),
        st.sampled_from((1.0, MINUTE, 9 * MINUTE, 11 * MINUTE, 70 * MINUTE, 1440 * MINUTE, 8 * 1440 * MINUTE)),
    ),
    max_size=20,
)


def sent(steps: list[tuple[str, str, float]], *, forgets: bool) -> list[tuple[str, Any, str]]:
    """Run the steps; return the key, the message without the number of openings, and that number's text.

    Args:
        steps: what happens, to which alert, and the pause afterwards.
        forgets: whether the file of a closed alert is deleted when the cooldown has ended.
    """
    with tempfile.TemporaryDirectory() as made, Sending(SLACK, Path(made)) as first:
        folder, run, runs = Path(made), first, [first]
        for what, key, pause in steps:
            if what == "fail":
                run.fail(key)
            elif what == "recover":
                run.recover(key)
            else:
                run.close()
                run = Sending(SLACK, folder, loop=run.loop)
                run.open()
                runs.append(run)
            run.passes(pause)
            for file in folder.iterdir() if forgets else ():
                stored = json.loads(file.read_bytes())
                if stored["phase"] == "closed" and run.wall - stored["told"] >= CONFIG.cooldown:
                    file.unlink()
    first.loop.close()
    return [_split(body) for one in runs for body in one.bodies]


def _split(body: Any) -> tuple[str, Any, str]:
    times = ""
    for block in body["attachments"][0]["blocks"]:
        for field in list(block["fields"]):
            if field["text"].startswith("*Times*"):
                block["fields"].remove(field)
                times = field["text"].partition("\n")[2]
    return body["text"].rpartition(": ")[2], body, times


@given(STEPS)
@settings(max_examples=60, deadline=None)
def test_what_is_sent_is_what_would_be_sent_without_the_memory(steps: list[tuple[str, str, float]]) -> None:
    whole = [(key, body) for key, body, _ in sent(steps, forgets=False)]
    assert whole == [(key, body) for key, body, _ in sent(steps, forgets=True)]


@given(STEPS)
@settings(max_examples=60, deadline=None)
def test_the_number_in_a_message_is_that_of_the_openings(steps: list[tuple[str, str, float]]) -> None:
    """At the end of a run, each alert that flaps is closed, which is no further opening."""
    expected, now = [], 0.0
    known: dict[str, tuple[int, bool, float]] = {}
    for what, key, pause in steps:
        times, is_open, sent_at = known.get(key, (0, False, 0.0))
        if times and now - sent_at >= CONFIG.expires_after + CONFIG.clock_tolerance:
            times, is_open = 0, False
        if what == "fail":
            is_sent = not is_open or now - sent_at >= CONFIG.cooldown
            times += not is_open
            expected += [(key, times)] if is_sent else []
            known[key] = (times, True, now if is_sent else sent_at)
        elif what == "recover":
            known[key] = (times, False, sent_at)
        now += pause
    said = [
        (key, int("".join(filter(str.isdigit, times.partition(" ")[0])) or 1))
        for key, body, times in sent(steps, forgets=False)
        if body["text"].startswith("ERROR")
    ]
    # Within the cooldown, a flapping alert sends no further message.
    assert [one for one in expected if one in said] == said
