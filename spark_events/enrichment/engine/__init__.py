"""The engine of an enrichment: calls, their order, their limits, their failures. It knows neither Spark nor Arrow."""
