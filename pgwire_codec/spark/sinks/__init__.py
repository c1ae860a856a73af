"""Rows for the tables that changes are applied to: Delta tables and AUTO CDC."""
