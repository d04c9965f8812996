"""http_api: the tools of a catalog over plain HTTP and JSON, for programs that do not use MCP."""
