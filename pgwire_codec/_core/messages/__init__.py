"""One message or frame at a time, as a dataclass."""
