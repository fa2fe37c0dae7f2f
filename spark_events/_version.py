"""Version of the project, used by the wheel, the jar's manifest and `spark_events.__version__`."""

__version__ = "0.1.0"
