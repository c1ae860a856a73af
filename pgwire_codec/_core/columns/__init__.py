"""Tuples of many messages: where their values lie, and their columns."""
