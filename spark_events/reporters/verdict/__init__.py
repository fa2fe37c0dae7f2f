"""Verdict of an application, where schedulers look: a JSON file, and the termination message of a container."""
