"""What the user calls: options, schema and requests, checked on the driver before a task runs."""
