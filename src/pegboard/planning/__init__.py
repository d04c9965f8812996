"""Planning: what a changed config gives and takes, and what it would have decided about recorded calls."""
