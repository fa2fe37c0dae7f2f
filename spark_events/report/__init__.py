"""Reports about stored events, for a terminal, as JSON, and as an HTML page."""
