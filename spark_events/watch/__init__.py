"""Detection of lost applications: a driver died without reporting its end."""
