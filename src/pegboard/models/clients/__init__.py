"""clients: pydantic-ai's language models, one module per provider, each on our HTTP client."""
