"""Public functions of enrichment. Runs on the driver, in the caller's thread: checks a request before any task runs."""
