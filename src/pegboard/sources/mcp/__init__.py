"""MCP: the tools of other MCP servers, each server under supervision and its words taken as foreign."""
