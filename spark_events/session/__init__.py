"""For people at a notebook or in a script: configure, start, subscribe, add events."""

from spark_events.session.adding import add_event
from spark_events.session.configuring import configure, jar_path, spark_conf
from spark_events.session.starting import start
from spark_events.session.stream import EventStream

__all__ = ["EventStream", "add_event", "configure", "jar_path", "spark_conf", "start"]
