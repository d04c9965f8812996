"""MCP: tools of upstream MCP servers, each supervised, with all its texts treated as foreign."""
