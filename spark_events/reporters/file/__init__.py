"""Reporter ``file``: one JSON object per line."""

from spark_events.reporters.file.config import FileConfig
from spark_events.reporters.file.reporter import FileReporter

__all__ = ["FileConfig", "FileReporter"]
