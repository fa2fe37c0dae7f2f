"""From records to Events: pure functions and small state machines, one file a subject.

Nothing here does I/O, reads a clock or starts a thread: the same records give the same events.
"""
