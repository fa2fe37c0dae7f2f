"""Reports on stored events: one model, shown in a terminal, as JSON and as an HTML page."""
