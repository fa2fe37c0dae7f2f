"""Tests of the reporter ``openlineage``."""
