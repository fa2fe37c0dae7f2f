"""Reporter ``otlp``: LogRecords for an OpenTelemetry Collector or any other OTLP receiver."""
