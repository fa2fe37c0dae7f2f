"""Calls to the user's function: their order, limits and failures.

The engine runs in Spark's Python workers, but uses neither Spark nor Arrow. The calls run on an event loop in a
separate thread.
"""
