"""OpenAPI: the operations of an HTTP API as tools, read from its own description."""
