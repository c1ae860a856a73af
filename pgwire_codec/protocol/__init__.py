"""The wire format: messages, their fields, LSNs and times."""
