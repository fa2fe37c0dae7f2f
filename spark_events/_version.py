"""The one place the version is written: the wheel, the jar's manifest and `spark_events.__version__` read it."""

__version__ = "0.1.0"
