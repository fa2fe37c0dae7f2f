"""Events of many event logs, read by the tasks of a Spark job, whose result is a DataFrame."""
