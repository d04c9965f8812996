"""embedding: implementations of the port Embedder, for tool and document search. Call them with `vectors.embedded`."""
