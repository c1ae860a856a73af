"""Decoders in other languages, measured beside this package on the same messages."""
