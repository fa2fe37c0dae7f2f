"""Detection of lost applications from their stored events."""
