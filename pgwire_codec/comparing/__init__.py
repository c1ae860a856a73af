"""Comparison of the tables of a lakehouse with those of the server that they mirror."""
