"""``kafka``: events as messages of a topic."""
