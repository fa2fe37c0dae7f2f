"""Where events go: one file a reporter, each with a configuration of its own."""
