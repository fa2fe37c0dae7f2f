"""Entry of a task. Runs in Spark's Python workers, in the task's thread: from Arrow to the engine and back."""
