"""Reporter ``openlineage``: applications and streaming queries as OpenLineage runs."""
