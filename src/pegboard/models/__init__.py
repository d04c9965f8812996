"""models: what fills the ports Model and Embedder."""
