"""learning: which tools were called after which searches, where an operator wants it to count."""
