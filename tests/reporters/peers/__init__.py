"""Real servers that the reporter tests start and stop on the loopback interface."""
