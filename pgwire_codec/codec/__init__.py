"""What both implementations of the codec share: their interface, inputs, tables and errors."""
