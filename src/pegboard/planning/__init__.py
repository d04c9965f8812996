"""Planning: compares the access under a changed config, and replays recorded calls under it."""
