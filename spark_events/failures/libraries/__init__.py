"""The registry's entries: one :class:`~spark_events.failures.libraries.library.Library` per client library."""
