"""Initial copy of the published tables, written to a log as one transaction before the stream."""
