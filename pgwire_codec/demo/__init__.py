"""A shop with a workload that has every kind of change, and a server to run it on."""
