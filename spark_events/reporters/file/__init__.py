"""Reporter ``file``: one JSON object per line."""

from spark_events.reporters.file.file_config import FileConfig
from spark_events.reporters.file.file_reporter import FileReporter

__all__ = ["FileConfig", "FileReporter"]
