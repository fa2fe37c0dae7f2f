"""Incidents: the events that open an incident, belong to it, or close it."""
