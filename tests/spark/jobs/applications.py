"""Small applications that run one after another in one process.

Arguments: the folder, the name and the settings of each application as JSON, and the names of the applications that run
until the test sends ``stop``.
"""

import json
import sys
import time

from control import announce, begin, count, received
from pyspark import SparkConf, SparkContext

for name, settings in json.loads(sys.argv[2]).items():
    begin(name)
    spark = SparkContext(conf=SparkConf().setAppName(name).setAll(settings.items()))
    assert count(spark) == 3
    announce(f"{name}/counted")
    if name in sys.argv[3:]:
        while not received(f"{name}/stop"):
            count(spark)
            time.sleep(0.05)  # an interval between jobs, which leaves the processor to other tests
    spark.stop()
    announce(f"{name}/stopped")
