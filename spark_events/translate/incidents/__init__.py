"""Incidents: decide which event of a failure is the alarm and which events are consequences."""
