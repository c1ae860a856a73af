"""Values of one column, decoded into buffers of Arrow: a module for each type family."""
