"""export: the doors out. Pure functions from a tool to what one target wants, and their bytes, made once a snapshot."""

from pegboard.providers.anthropic import anthropic_tool
from pegboard.providers.gemini import gemini_tool
from pegboard.providers.mcp import mcp_tool
from pegboard.providers.openai import openai_strict_tool, openai_tool
from pegboard.providers.target import Target, Targets

EXPORTERS = Targets(
    Target("openai", openai_tool),
    Target("openai_strict", openai_strict_tool),
    Target("anthropic", anthropic_tool),
    Target("gemini", gemini_tool),
    Target("mcp", lambda entry, name, schema: mcp_tool(entry)),
)
