"""Documentation site: hooks of mkdocs and pictures."""
