"""Deadlines: events for running work that has exceeded a time limit."""
