"""Spark's records: their types, and the pipes and driver sessions that deliver them."""
