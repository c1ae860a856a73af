"""Formats of the rows of ``format("pgoutput")``."""
