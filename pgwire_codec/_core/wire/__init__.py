"""Bytes of the wire: integers, tuples, and the heads of messages as arrays."""
