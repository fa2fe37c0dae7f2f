"""Spark's records: their types, the pipes and event logs that deliver them, and the answers to the driver."""
