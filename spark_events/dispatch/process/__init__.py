"""Reporters in separate processes, so that a crash affects no other reporter."""
