"""OpenAPI: the operations of an HTTP API as tools, from its OpenAPI description."""
