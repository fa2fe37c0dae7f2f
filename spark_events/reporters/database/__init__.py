"""``database``: one table of events, and the views that an operator asks for."""
