"""``otlp``: events as LogRecords, to an OpenTelemetry Collector or any other OTLP receiver."""
