"""Deadlines: events for work that exceeds a time limit, reported while the work still runs."""
