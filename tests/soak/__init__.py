"""A soak: a capture and a mirror for hours, under load and faults, compared with the server.

``python -m tests.soak --hours 1`` runs it; ``make soak HOURS=1`` does. Linux only. A seed chooses
the faults, their order and their lengths; the moments also depend on the machine.
"""
