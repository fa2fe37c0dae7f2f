"""Program that ends in the way that its argument selects."""

import sys

from pyspark import SparkContext

how = sys.argv[1]
spark = SparkContext.getOrCreate()
if how == "raise" or (how == "raise-first" and spark._jsc.sc().applicationAttemptId().get() == "1"):
    raise ValueError("no price for order 7")
if how == "exit-3":
    sys.exit(3)
if how == "stop-raise":
    spark.stop()
    raise ValueError("no price for order 7")
