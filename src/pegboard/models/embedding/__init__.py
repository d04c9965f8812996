"""embedding: what fills the port Embedder, for the search of tools and of documents alike. `vectors.embedded` asks."""
