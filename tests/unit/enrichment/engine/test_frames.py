"""Tests of the function that finds the current frame of another thread."""

from __future__ import annotations

import subprocess
import sys
import threading

from spark_events.enrichment.engine.frames import frame_of, is_foreign

#: Code that creates garbage with a ``threading.local``, and collects it at the next allocation.
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


def test_the_frame_of_a_live_thread_is_found() -> None:
    """The frame of a live thread is found; a thread that has ended has no frame."""
    frame = frame_of(threading.get_ident())
    assert frame is not None
    assert frame.f_code.co_name == "frame_of"
    assert frame_of(0) is None
    assert frame_of(None) is None


def test_code_without_a_path_belongs_to_a_library() -> None:
    """The code of Cython, as in uvloop, has no path. Regression: an error named uvloop's line, not the user's."""
    assert is_foreign("uvloop/loop.pyx")
    assert not is_foreign("/srv/program.py")


def test_a_garbage_collection_causes_no_deadlock() -> None:
    """A garbage collection causes no deadlock. Before Python 3.12, `sys._current_frames` can deadlock in this case."""
    done = subprocess.run([sys.executable, "-c", LOOKS], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "done\n", done.stderr
