"""Formats of a lakehouse's tables."""
