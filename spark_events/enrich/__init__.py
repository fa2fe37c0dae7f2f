"""Ordered, stateless, asynchronous calls to the outside world for every row of a DataFrame."""

import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from spark_events.enrich.engine.context import Context
from spark_events.enrich.plan import Cache, CircuitBreaker, Retry
from spark_events.enrich.spark.enrich import enrich, enrich_batch

__all__ = ["Cache", "CircuitBreaker", "Context", "Retry", "enrich", "enrich_batch"]


class _Callable(ModuleType):
    """``spark_events.enrich`` is this package and, by the façade, the function: Python has one attribute for both."""

    __signature__ = inspect.signature(enrich)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return enrich(*args, **kwargs)

    def __reduce__(self) -> tuple[Callable[[str], ModuleType], tuple[str]]:
        return import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Callable
