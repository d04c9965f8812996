"""workspace: ingests, finds, reads and queries the documents of each space, within the caller's permissions."""
