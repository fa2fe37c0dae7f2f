"""Summaries of stages and of the application: why a stage was slow, and what the work cost."""
