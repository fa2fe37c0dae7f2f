"""Reporters in separate processes, so that a crash of one reporter does not affect the others."""
