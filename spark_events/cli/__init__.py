"""Command line ``spark-events``."""

from spark_events.cli.main import main

__all__ = ["main"]
