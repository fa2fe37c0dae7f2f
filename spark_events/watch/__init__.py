"""Detection of lost applications, whose driver died without reporting that the application ended."""
