"""Table definitions in SQLAlchemy."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, DateTime, Index, MetaData, SmallInteger, Table, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import JSON

__all__ = ["EVENTS", "METADATA", "SCHEMA", "THRESHOLDS"]

METADATA = MetaData()

#: One row per event.
EVENTS = Table(
    "spark_events",
    METADATA,
    Column("event_id", Text, primary_key=True),
    Column("sequence", BigInteger, nullable=False),
    Column("observed_ts_millis", BigInteger, nullable=False),
    # The same time in UTC; NULL if the year is out of range.
    Column("observed_at", DateTime(timezone=True)),
    Column("name", Text, nullable=False),
    Column("class_scope", Text, nullable=False),
    Column("severity", Text, nullable=False),
    Column("severity_number", SmallInteger, nullable=False),
    Column("body", Text, nullable=False),
    # Copies of attributes, for views and indexes.
    Column("app_id", Text),
    Column("app_attempt_id", Text),
    Column("app_name", Text),
    Column("query_id", Text),
    Column("query_run_id", Text),
    Column("query_name", Text),
    Column("entity", Text),
    Column("status", Text),
    Column("error_type", Text),
    Column("batch_id", BigInteger),
    Column("batches", BigInteger),
    Column("input_rows", BigInteger),
    Column("duration_ms", BigInteger),
    Column("attributes", JSON().with_variant(JSONB(), "postgresql"), nullable=False),
    Index("spark_events_by_time", "observed_ts_millis"),
    Index("spark_events_by_name", "name", "observed_ts_millis"),
    Index("spark_events_by_application", "app_id", "observed_ts_millis"),
)

#: Commit duration in milliseconds above which a query is slow; ``*`` is the default. Users edit this table.
THRESHOLDS = Table(
    "spark_events_thresholds",
    METADATA,
    Column("query_name", Text, primary_key=True),
    Column("slow_commit_ms", BigInteger, nullable=False),
)

#: One row: the schema version.
SCHEMA = Table("spark_events_schema", METADATA, Column("version", BigInteger, nullable=False))
