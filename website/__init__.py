"""Hooks of the documentation site (mkdocs), and pictures for the documentation."""
