"""PostgreSQL's logical replication stream (pgoutput), decoded into numpy and Arrow columns."""
