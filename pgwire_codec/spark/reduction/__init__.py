"""Reduction of a table's changes to the rows that they leave."""
