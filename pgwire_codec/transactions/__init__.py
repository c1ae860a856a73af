"""Transactions: which changes committed, in which order, and under which Relation."""
