"""Deadlines: events for work that takes longer than allowed, made while the work still runs."""
