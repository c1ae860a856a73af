"""Captures and mirrors that are killed, servers that restart, standbys that are promoted.

``python -m tests.crash --kills 100 --restarts 20 --promotions 20 --mirror-kills 30`` runs it;
``make crash`` does. The standbys are of PostgreSQL 18, or of the server of
``PGWIRE_TEST_POSTGRES``. The capture is killed in half of the promotions. After a third of the
mirror's kills, the checkpoint is removed. After another third, the log is pruned up to the LSN that
the mirror has recorded. Most of these mirrors have a second one beside them, and tables that are
restored to earlier versions. ``--pairs 60`` runs each pair of mirrors for a minute: without Spark,
with it, once and again, and by ``pgwire-codec run``.
"""
