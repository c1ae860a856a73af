"""Columns in Arrow's layout, and their export to nanoarrow, pyarrow, numpy and Python."""
