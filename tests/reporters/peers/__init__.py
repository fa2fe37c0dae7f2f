"""Real servers for the reporter tests, started and stopped by the tests on loopback."""
