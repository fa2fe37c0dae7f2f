"""Reporters, the destinations of events; each has its own configuration."""
