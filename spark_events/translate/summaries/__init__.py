"""Summaries of stages and of the application: causes of slowness, and cost."""
