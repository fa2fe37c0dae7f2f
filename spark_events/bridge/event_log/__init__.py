"""Reading of Spark's event logs: files, lines, formats of lines, and the same records that the shim sends."""
