"""Incidents: the alarm and the consequences among the events of one failure."""
