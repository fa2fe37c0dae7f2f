"""Settings of the reporter ``file``."""

from __future__ import annotations

import dataclasses

from spark_events.config import choice, integer, option, path, positive_duration, size


@dataclasses.dataclass(frozen=True, slots=True)
class FileConfig:
    """``events.reporter.<name>.…`` of type ``file``."""

    path: str = option(
        "path", path("the path of a file"), doc="The file that events are appended to; made if it is not there."
    )
    fsync: str = option(
        "fsync",
        choice("never", "batch"),
        "never",
        doc="never: what is written outlives the process. batch: it is on the disk before it counts as delivered.",
    )
    max_size: int | None = option(
        "rotation.max-size", size, None, doc="A file that would become larger is put aside. Not set: never."
    )
    max_age: float | None = option(
        "rotation.max-age",
        positive_duration,
        None,
        doc="A file holds one such period, in UTC: with 1d, a new one begins at midnight. Not set: no age limit.",
    )
    keep: int = option("rotation.keep", integer(1, 100_000), 10, doc="How many files that were put aside are kept.")

    @property
    def rotates(self) -> bool:
        """Whether the size or the age of the file is limited."""
        return self.max_size is not None or self.max_age is not None
