"""Looking where another thread is."""

from __future__ import annotations

import subprocess
import sys
import threading

from spark_events.enrichment.engine.frames import frame_of

#: Garbage that holds a ``threading.local``, and a collection with the next object that is made.
LOOKS = """
import gc, threading
from spark_events.enrichment.engine.frames import frame_of

class Garbage:
    pass

gc.set_threshold(1, 1, 1)
thread = threading.get_ident()
for _ in range(300):
    gc.disable()
    for _ in range(10):
        garbage = Garbage()
        garbage.itself, garbage.local = garbage, threading.local()
        garbage.local.value = 1
    del garbage
    gc.enable()
    found = frame_of(thread)
    assert found is not None
assert gc.isenabled()
gc.disable()
frame_of(0)
assert not gc.isenabled()
print("done")
"""


def test_it_finds_the_frame_of_a_thread() -> None:
    """Of one that lives; there is none of another."""
    frame = frame_of(threading.get_ident())
    assert frame is not None
    assert frame.f_code.co_name == "frame_of"
    assert frame_of(0) is None
    assert frame_of(None) is None


def test_a_collection_of_garbage_cannot_stop_the_process() -> None:
    """As `sys._current_frames` alone does here, on Pythons before 3.12: it would wait for its own lock for ever."""
    done = subprocess.run([sys.executable, "-c", LOOKS], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "done\n", done.stderr
