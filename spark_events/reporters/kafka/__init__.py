"""Reporter ``kafka``: one message per event."""
