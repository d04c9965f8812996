"""server: the doors of a catalog to other programs: MCP over streamable HTTP and stdio, and plain HTTP."""
