"""For people at a notebook or in a script: configure, start, subscribe, add events."""
