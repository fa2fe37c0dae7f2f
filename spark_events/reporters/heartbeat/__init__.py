"""Reporter ``heartbeat``: pings for monitors that raise the alarm when pings stop."""
