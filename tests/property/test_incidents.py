"""A model of incidents: exactly the causes that still hold are open, whatever drivers and sidecars do."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hypothesis import settings
from hypothesis.stateful import invariant

from property.incident_rules import Driver, Incidents
from spark_events import Event, Severity


class AtReceiver(Incidents):
    """A receiver of all events: alarms open, recoveries close, at once."""

    def __init__(self) -> None:
        super().__init__()
        self.open: set[str] = set()

    def receive(self, driver: Driver, events: Sequence[Event]) -> None:
        for event in events:
            about = event.attributes
            if about.get("incident.role") == "recovery":
                self.open -= {str(about["incident.key"]), *json.loads(str(about.get("incident.more_keys", "[]")))}
            elif event.severity >= Severity.ERROR:
                assert about["incident.role"] == "alarm"
                self.open.add(str(about["incident.key"]))

    @invariant()
    def exactly_the_causes_that_hold_are_open(self) -> None:
        assert self.open == self.holds


TestIncidents = AtReceiver.TestCase
TestIncidents.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
