"""Reporters in separate processes: a crash of one process affects no other reporter."""
