"""Reporters against their real peers: what arrives, and what becomes of it when something is wrong."""
