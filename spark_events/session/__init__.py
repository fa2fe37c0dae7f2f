"""Notebook and script API: configure, start, subscribe, add events."""
