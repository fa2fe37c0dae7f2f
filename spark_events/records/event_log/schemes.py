"""Schemes of the URLs at which event logs may lie."""

from __future__ import annotations

#: Extra of this package for each scheme of a remote place.
EXTRAS = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gcs"),
    **dict.fromkeys(("abfs", "abfss"), "azure"),
    **dict.fromkeys(("hdfs", "webhdfs"), "hdfs"),
}
