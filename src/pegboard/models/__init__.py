"""models: language models and embedders, which implement the ports Model and Embedder."""
