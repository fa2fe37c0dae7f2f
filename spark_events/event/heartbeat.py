"""Names that drivers and watchers share: an application that sends heartbeats is LOST when they stop."""

from __future__ import annotations

#: Name of the event that a driver repeats while its application runs.
HEARTBEAT = "HeartbeatEvent"
#: Attribute with the time until the next heartbeat, in milliseconds.
INTERVAL = "spark.heartbeat.interval_ms"
