"""meta_tools: searchTools, getTools and useTools, the tools that find and run all others."""
