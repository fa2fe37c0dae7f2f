"""Reader of Spark's event logs: it makes the same records that the shim sends for a running application."""
