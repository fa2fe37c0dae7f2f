"""Settings of the reporter ``file``."""

from __future__ import annotations

import dataclasses

from spark_events.config import choice, integer, option, path, positive_duration, size


@dataclasses.dataclass(frozen=True, slots=True)
class FileConfig:
    """Settings below ``events.reporter.<name>.`` for type ``file``."""

    path: str = option("path", path("the path of a file"), doc="File to which events are appended; created if missing.")
    fsync: str = option(
        "fsync",
        choice("never", "batch"),
        "never",
        doc="never: written events survive a crash of the process. batch: sync each batch to the disk before it "
        "counts as delivered.",
    )
    max_size: int | None = option(
        "rotation.max-size", size, None, doc="Size at which the file is rotated. If unset, the size has no limit."
    )
    max_age: float | None = option(
        "rotation.max-age",
        positive_duration,
        None,
        doc="Period after which the file is rotated, in UTC: with 1d, a new file begins at midnight. If unset, the age "
        "has no limit.",
    )
    keep: int = option(
        "rotation.keep", integer(1, 100_000), 10, doc="Maximum number of rotated files; the oldest files are deleted."
    )

    @property
    def rotates(self) -> bool:
        """Whether the size or the age of the file is limited."""
        return self.max_size is not None or self.max_age is not None
