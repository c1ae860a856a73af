"""Objects in a server's catalogs: publications, published tables, and replication slots."""
