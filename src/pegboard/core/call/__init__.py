"""call: the guarded call: its record, its stages and its result."""
