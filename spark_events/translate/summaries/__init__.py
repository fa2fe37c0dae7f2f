"""Summaries of stages and of the application: why it was slow, and what it cost."""
