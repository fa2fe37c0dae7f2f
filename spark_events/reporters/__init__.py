"""Reporters, which deliver events to destinations; each type has its own configuration."""
