"""Reports on stored events, in a terminal, as JSON and as an HTML page."""
