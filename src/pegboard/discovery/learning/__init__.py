"""learning: counts the tools called after each search, if the operator enables it."""
