"""Parts that both implementations of the codec share: interface, inputs, tables and errors."""
