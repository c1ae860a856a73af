"""Tables that changes are applied to: Delta and Iceberg tables, and those of AUTO CDC."""
