"""Code that runs in Spark's Python workers: reads Arrow batches, runs the engine, and returns Arrow batches."""
