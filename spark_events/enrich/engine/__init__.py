"""The engine of an enrichment: calls, their order, their limits and their failures. It knows nothing of Spark or Arrow."""
