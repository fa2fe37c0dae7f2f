"""Spark's records: their types, the sources that deliver them, and the messages to the driver."""
