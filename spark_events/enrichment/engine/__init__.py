"""Calls and their order, limits and failures. Runs in Spark's Python workers, without Spark and Arrow; the calls run
on an event loop in a thread of its own.
"""
