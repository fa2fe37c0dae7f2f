"""Fill each kind of memory: an executor's heap, a Python worker's limit, and the limit of results on the driver."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession


def main() -> None:
    spark = SparkSession.builder.appName("out-of-memory").getOrCreate()
    context = spark.sparkContext
    failures: dict[str, Callable[[], object]] = {
        "python": lambda: context.parallelize([1], 1).map(lambda _: len(bytearray(4 << 30))).collect(),
        "results": lambda: spark.range(0, 1 << 20, 1, 2).collect(),
        "heap": lambda: spark.range(1).selectExpr("length(repeat('x', cast(id + 1500000000 as int)))").collect(),
    }
    for name, fails in failures.items():
        context.setJobGroup(name, name)
        try:
            fails()
        except Exception as error:
            print(name, type(error).__name__, flush=True)
        else:
            raise AssertionError(f"{name} did not fail")
    spark.stop()


if __name__ == "__main__":
    main()
