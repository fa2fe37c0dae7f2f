"""The package's own names, which come when they are asked for."""

from __future__ import annotations

import pickle
import subprocess
import sys

import spark_events


def test_every_name_is_offered_and_there() -> None:
    """To whoever completes names, too."""
    assert set(spark_events.__all__) <= set(dir(spark_events))
    for name in spark_events.__all__:
        assert getattr(spark_events, name) is not None


def test_enrich_is_the_same_whenever_it_is_asked_for() -> None:
    """It is the function and the package, for the first who asks as for the second, and in another process."""
    program = "import spark_events; first = spark_events.enrich; assert first is spark_events.enrich; first.Retry"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0
    assert pickle.loads(pickle.dumps(spark_events.enrich)) is spark_events.enrich
