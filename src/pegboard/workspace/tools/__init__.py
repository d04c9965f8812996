"""tools: an agent's tools for documents, one module per tool."""
