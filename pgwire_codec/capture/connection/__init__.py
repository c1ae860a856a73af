"""Connections to a PostgreSQL server: connect, interrupt, retry, and read replication frames."""
