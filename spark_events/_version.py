"""The version; the wheel, the jar's manifest and `spark_events.__version__` read it from this file."""

__version__ = "0.1.0"
