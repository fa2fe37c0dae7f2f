"""Reporter ``database``: a table of events, and views for operators."""
