"""Incidents: which event of one failure is the alarm, and which are its consequences."""
