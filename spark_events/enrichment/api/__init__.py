"""Public functions of enrichment: they check a request on the driver, before any task runs.

They run in the caller's thread.
"""
