"""Runners of a mirror's tasks: threads of this process, and executors of Spark."""
