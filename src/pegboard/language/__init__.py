"""language: what is known of natural languages."""
