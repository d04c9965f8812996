"""mcp: the Model Context Protocol on a catalog. Only these modules know the SDK, and only some of them load it."""
