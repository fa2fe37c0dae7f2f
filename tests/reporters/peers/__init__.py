"""Real servers for the reporter tests, which tests start and stop on loopback."""
