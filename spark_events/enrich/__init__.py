"""Ordered, stateless, asynchronous calls to the outside world for every row of a DataFrame."""
