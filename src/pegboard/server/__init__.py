"""server: a catalog for other programs: MCP over streamable HTTP and stdio, and plain HTTP."""
