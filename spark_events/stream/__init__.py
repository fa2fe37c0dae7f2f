"""API for notebooks and scripts: configure, start, subscribe, add events."""
