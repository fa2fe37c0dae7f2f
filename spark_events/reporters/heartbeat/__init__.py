"""Reporter ``heartbeat``: pings a monitor, which raises an alarm when the pings stop."""
