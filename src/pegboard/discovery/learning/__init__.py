"""learning: counts which tools are called after which searches, if the operator enables it."""
