"""Public functions of enrichment.

They check a request on the driver before any task runs, in the caller's thread.
"""
