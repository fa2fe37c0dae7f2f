"""Reporter ``database``: stores events in a table, with views for operators."""
