"""export: the doors out. Pure functions from a tool to what one target wants, and their bytes, made once a snapshot."""

from pegboard.export.anthropic import anthropic_tool
from pegboard.export.gemini import gemini_tool
from pegboard.export.mcp import mcp_tool
from pegboard.export.openai import openai_tool
from pegboard.export.target import Target

EXPORTERS = {
    "openai": Target("openai", openai_tool),
    "anthropic": Target("anthropic", anthropic_tool),
    "gemini": Target("gemini", gemini_tool),
    "mcp": Target("mcp", mcp_tool),
}
