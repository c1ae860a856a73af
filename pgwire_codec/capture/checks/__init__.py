"""Checks of a server, before anything is created on it."""
