"""From Spark's event logs to the same records that the shim sends: files, lines, their shapes, records."""
