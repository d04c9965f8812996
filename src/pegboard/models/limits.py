"""Limits that several modules of `models` share."""

LISTED_LINE_CHARS = 200  # characters of one tool in a listing
EMBED_BATCH = 64  # texts in one request to a model
EMBED_READ_S = 60.0  # seconds for one batch of tools that a model reads in the background
EMBED_REST_S = 30.0  # how long after a failure searches use words only, in seconds
EMBED_WAIT_S = 1.5  # seconds that a search waits for an embedder before it uses words only
EMBED_LOAD_S = 30.0  # seconds that a search waits once for a local model to load before it uses words only
