"""The documentation site: hooks of mkdocs, and its pictures."""
