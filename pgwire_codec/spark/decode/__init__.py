"""Decoding of messages that Spark holds, in DataFrames or RDDs."""
