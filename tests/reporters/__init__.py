"""Tests of reporters against real servers: delivery and failures."""
