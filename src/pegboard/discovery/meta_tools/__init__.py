"""meta_tools: searchTools, getTools and useTools, the few tools that find and run the others."""
