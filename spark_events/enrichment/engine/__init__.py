"""The engine of an enrichment: calls and their order, limits and failures; independent of Spark and Arrow."""
