"""Captures that are killed, servers that are restarted, and standbys that are promoted, under load.

``python -m tests.crash --kills 100 --restarts 20 --promotions 20`` runs it; ``make crash`` does.
The standbys are of PostgreSQL 18, or of the server of ``PGWIRE_TEST_POSTGRES``. The capture is
killed in half of the promotions.
"""
