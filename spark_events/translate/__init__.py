"""Translation of records to events: pure functions and small state machines, one file per subject.

This package does no I/O, reads no clock and starts no thread, so equal records produce equal events.
"""
