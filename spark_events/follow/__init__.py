"""Follow the event logs of running applications, and deliver their events once."""
