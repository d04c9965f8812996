"""tools: what an agent can do with documents, one module a tool."""
