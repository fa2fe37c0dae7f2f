"""The part that runs in Spark's Python workers: Arrow in, the engine, Arrow out."""
