"""Captures that are killed, and servers that are restarted, at random moments under a workload.

``python -m tests.crash --kills 100 --restarts 20`` runs it; ``make crash`` does.
"""
