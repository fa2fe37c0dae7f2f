"""Conversion of the caller's arguments to the enriched DataFrame, without computing it."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spark_events.enrichment.api.closures import definition_of, pickled
from spark_events.enrichment.api.key_order import arranged, check_shared_answers
from spark_events.enrichment.api.schema import (
    Output,
    check_carried,
    check_collation,
    check_received,
    existing,
    output_of,
)
from spark_events.enrichment.checks import columns_of
from spark_events.enrichment.driver.micro_batch import is_connect
from spark_events.enrichment.driver.package_distribution import ship
from spark_events.enrichment.driver.rate import limits_of, sharing_tasks
from spark_events.enrichment.driver.warnings import (
    warn_of_changing_keys,
    warn_of_random_keys,
    warn_of_settings,
)
from spark_events.enrichment.plan import Plan
from spark_events.enrichment.settings import Key, Limits, Replay
from spark_events.enrichment.signature import name_of, names_reached, qualified_name
from spark_events.enrichment.worker.map_in_arrow import Mapper
from spark_events.enrichment.worker.report import COLUMN, FAILURE_TYPE
from spark_events.enrichment.worker.task import Task
from spark_events.errors import InvalidPlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from spark_events.enrichment.engine.run import Definition
    from spark_events.enrichment.worker.channel_client import ChannelAddress
    from spark_events.enrichment.worker.replay import ReplayStore

__all__ = ["Request", "mapped"]


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """Validated arguments of one enrichment, and the DataFrame in the order of the calls.

    Attributes:
        name: the enrichment's own name, for the idempotency keys and stored answers.
        pickled: the pickled plan.
        definition: digests of the state (cached answers, resources) that this enrichment may reuse.
    """

    df: DataFrame
    plan: Plan
    output: Output
    input_cols: tuple[str, ...]
    identity: tuple[str, ...]
    name: str
    failure_column: str
    pickled: bytes
    definition: Definition

    @classmethod
    def of(
        cls,
        df: DataFrame,
        plan: Plan,
        output: str | StructType | type[Any],
        input_cols: str | Sequence[str] | None,
        key: str | Sequence[str] | Key | None,
        failure_column: str,
        limits: Limits,
        replay: Replay,
    ) -> Request:
        """Validate the arguments as far as possible before a task runs.

        Raises:
            InvalidPlanError: when an argument or a combination of arguments is invalid.
        """
        takes_column = plan.on_failure in ("column", "dead_letter")
        if not df.columns:
            raise InvalidPlanError("the DataFrame has no columns, so Spark passes no rows to fn: add a column")
        check_carried(df)
        made = output_of(df, output, failure_column if takes_column else "")
        no_columns = isinstance(input_cols, (list, tuple)) and not input_cols
        inputs = existing(df, "input_cols", () if no_columns else columns_of("input_cols", input_cols))
        check_received(df, inputs)
        check_shared_answers(plan, inputs)
        # A function that reads no column at all has rows without an identity, unless all columns identify them.
        identity = existing(df, "Replay.idempotency_cols", replay.idempotency_cols or inputs or None)
        check_collation(df, "key", plan.key or ())
        check_collation(df, "Cache.by", plan.coalesce_by or ())
        if plan.cache is not None and plan.coalesce_by is None:
            check_collation(df, "cache", inputs)
        warn_of_settings(df)
        if _reads_keys(plan):
            if input_cols is None and replay.idempotency_cols is None:
                warn_of_changing_keys(df, name_of(plan.fn))
            if not df.isStreaming and not is_connect(df):
                warn_of_random_keys(df, name_of(plan.fn), identity)
        ordered = arranged(df, plan.key, key.order_by if isinstance(key, Key) else None)
        plan = dataclasses.replace(plan, tasks=sharing_tasks(ordered, limits.concurrent_tasks))
        given, definition = pickled(plan), definition_of(plan, made, ordered.schema, inputs)
        name = replay.name or qualified_name(plan.fn)
        return cls(ordered, plan, made, inputs, identity, name, failure_column, given, definition)

    def task(
        self,
        *,
        scope: str | None,
        settles: bool,
        replay: ReplayStore | None = None,
        channel: ChannelAddress | None = None,
    ) -> Task:
        """Return the task that the executors run."""
        with_column = not settles and self.plan.on_failure == "column"
        return Task(
            pickled=self.pickled,
            definition=pickle.dumps(self.definition),
            output=self.output.serialised(),
            input_cols=self.input_cols,
            identity=self.identity,
            name=self.name,
            scope=scope,
            settles=settles,
            failure_column=self.failure_column if with_column else "",
            job=limits_of(self.plan) or None,
            replay=replay,
            channel=channel,
            names=tuple(self.df.columns) if _is_awkward(self.df) else (),
        )


def _reads_keys(plan: Plan) -> bool:
    """Return whether the function reads its idempotency keys, as far as its code and that of its helpers shows."""
    return plan.wants_context and not {"idempotency_key", "idempotency_keys"}.isdisjoint(names_reached(plan.fn))


def mapped(request: Request, task: Task) -> DataFrame:
    """Return the DataFrame with the columns for answers and, if requested, for failures and reports."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import BinaryType, StructField, StructType

    # A failed row has null answers, so Spark's schema allows nulls in every answer column; the worker still checks NOT
    # NULL.
    answers = [StructField(field.name, field.dataType, True, field.metadata) for field in request.output.spark.fields]
    fields = [*request.df.schema.fields, *answers]
    failure = from_arrow_type(FAILURE_TYPE)
    if task.settles:
        hidden = StructType([StructField("failure", failure), StructField("report", BinaryType())])
        fields.append(StructField(COLUMN, hidden))
    elif task.failure_column:
        fields.append(StructField(task.failure_column, failure))
    ship(request.df)
    df = request.df
    if task.names:
        df = df.toDF(*(f"c{index}" for index in range(len(task.names))))
    return df.mapInArrow(Mapper(task), StructType(fields))


def _is_awkward(df: DataFrame) -> bool:
    """Return whether a column name contains "." or a backtick.

    ``mapInArrow`` parses names as expressions without quoting them, so it would not find such a column.
    """
    return any("." in name or "`" in name for name in df.columns)
