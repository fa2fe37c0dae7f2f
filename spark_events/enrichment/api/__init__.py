"""Public functions of enrichment: options, schema and requests, checked on the driver before a task runs."""
