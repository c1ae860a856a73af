"""The tables of a log as tables of a lakehouse, kept up to date by one streaming query."""
