"""Limits that several modules of `models` share. Those that an operator may change are in `Bounds`."""

LISTED_LINE_CHARS = 200  # of one tool in a listing
EMBED_BATCH = 64  # texts of one request to a model
EMBED_READ_S = 60.0  # of one batch of tools that a model reads in the background
EMBED_REST_S = 30.0  # after a failure, in which searches go by words alone
EMBED_WAIT_S = 1.5  # that a search waits for an embedder, before it goes by words alone
EMBED_LOAD_S = 30.0  # that a search waits once for a model on this machine, before it goes by words alone
