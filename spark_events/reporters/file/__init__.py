"""``file``: one JSON object a line, appended; readable while it grows."""

from spark_events.reporters.file.config import FileConfig
from spark_events.reporters.file.reporter import FileReporter

__all__ = ["FileConfig", "FileReporter"]
