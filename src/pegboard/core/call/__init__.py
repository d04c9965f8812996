"""call: the guarded call: its record, its stages, and what remains of it when it is over."""
