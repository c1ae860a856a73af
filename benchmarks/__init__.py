"""How fast decoding is: against the limit, the reference and other programs, in one run."""
