"""Applications that fell silent: found from their stored events, reported as LOST."""
