"""Several consecutive SparkContexts in one JVM, where the first context fails to start.

After each context has stopped, the job records the threads of spark-events and the JVM's open pipes.
"""

import contextlib
import os

from control import count, write_down
from pyspark import SparkConf, SparkContext


def pipes(folder: str) -> int:
    count = 0
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):  # another thread closed this descriptor
            count += os.readlink(os.path.join(folder, name)).startswith("pipe:")
    return count


try:
    SparkContext(conf=SparkConf().setMaster("local[no number]").setAppName("broken"))
except Exception as error:
    if "local[no number]" not in str(error):
        raise
else:
    raise AssertionError("a broken master was accepted")

after = []
for number in range(4):
    sc = SparkContext(conf=SparkConf().setMaster("local[1]").setAppName(f"context {number}"))
    assert count(sc) == 3
    jvm = sc._jvm
    assert jvm is not None
    sc.stop()
    names = [thread.getName() for thread in jvm.java.lang.Thread.getAllStackTraces().keySet()]
    pid = int(jvm.java.lang.ProcessHandle.current().pid())
    after.append(
        {
            "threads": sorted(name for name in names if name.startswith("spark-events")),
            "children": int(jvm.java.lang.ProcessHandle.current().children().count()),
            "pipes": pipes(f"/proc/{pid}/fd"),
        }
    )
write_down(after)
