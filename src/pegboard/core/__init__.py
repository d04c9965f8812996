"""core: the idea itself; knows no framework."""
