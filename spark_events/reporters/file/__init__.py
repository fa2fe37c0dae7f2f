"""``file``: append one JSON object per line; the file is readable while it grows."""

from spark_events.reporters.file.config import FileConfig
from spark_events.reporters.file.reporter import FileReporter

__all__ = ["FileConfig", "FileReporter"]
