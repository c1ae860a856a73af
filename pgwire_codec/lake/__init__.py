"""Tables of a lakehouse from a log: decisions in plain Python, rows in Arrow."""
