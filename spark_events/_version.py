"""Version of the project; the wheel, the jar's manifest and `spark_events.__version__` read this file."""

__version__ = "0.1.0"
