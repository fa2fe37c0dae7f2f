"""Runs, uptime, failures, incidents and current problems, defined once, in SQL, for SQLite, PostgreSQL and DuckDB.

The database reporter creates these definitions as views, which Grafana reads. The report, ``why`` and the notebook
compute them as tables in DuckDB, over events of any source.
"""
