"""Reader of Spark's event logs: creates the records that the shim sends for a running application."""
