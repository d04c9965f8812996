"""clients: the language models of pydantic-ai, a module for each provider, each on an HTTP client of ours."""
