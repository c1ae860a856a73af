"""Committed changes as columns: batches, their columns, and the record batches made of them."""
