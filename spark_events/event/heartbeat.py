"""Names of the heartbeat event and of its attribute, which drivers and watchers share."""

from __future__ import annotations

#: Name of the event that an application sends periodically. If the heartbeats stop, the application counts as LOST.
HEARTBEAT = "HeartbeatEvent"
#: Attribute with the time until the next heartbeat, in milliseconds.
INTERVAL = "spark.heartbeat.interval_ms"
