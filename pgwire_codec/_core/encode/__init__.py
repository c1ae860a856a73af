"""Columns of Arrow as messages."""
