"""Small applications that run one after another in one process.

Arguments: the folder, the name and the settings of each application as JSON, and the names of the applications that run
until the test sends ``stop``.
"""

import json
import sys
import time

from control import announce, begin, count, received
from pyspark.sql import SparkSession

for name, settings in json.loads(sys.argv[2]).items():
    begin(name)
    spark = SparkSession.builder.appName(name).config(map=settings).getOrCreate()
    assert count(spark.sparkContext) == 3
    announce(f"{name}/counted")
    if name in sys.argv[3:]:
        while not received(f"{name}/stop"):
            count(spark.sparkContext)
            time.sleep(0.05)  # an interval between jobs, which leaves the processor to other tests
    spark.stop()
    announce(f"{name}/stopped")
