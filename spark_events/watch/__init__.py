"""Detection of lost applications, whose driver died without reporting that the application ended.

Spark has no process that outlives the driver in every deployment, so a separate command reads the events that a
reporter wrote. It needs no server, no port in the driver and no coordination service: the ``event_id`` of a LOST event
is a hash of the application and the fact, so a sidecar, several watchers and the next run may all report one loss.
"""
