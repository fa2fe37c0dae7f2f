"""Enrichment on Spark: Arrow in and out of the engine, settling a batch, and what must be known around it."""
