"""Benchmark harness: generated input of many shapes, decoded and compared on the user's machine."""
