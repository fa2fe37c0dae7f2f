"""From Spark to records: what the shim sends, as types, and the pipe it comes through."""
