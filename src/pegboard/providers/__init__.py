"""providers: schemas and tools in the form of OpenAI, Anthropic, Gemini and MCP, and their models' arguments."""

from pegboard.providers.anthropic import anthropic_strict_tool, anthropic_tool
from pegboard.providers.exporter import Exporter, Exporters
from pegboard.providers.gemini import gemini_tool
from pegboard.providers.mcp import mcp_tool
from pegboard.providers.openai import openai_responses_tool, openai_strict_tool, openai_tool

EXPORTERS = Exporters(
    Exporter("openai", openai_tool),
    Exporter("openai_strict", openai_strict_tool),
    Exporter("openai_responses", openai_responses_tool),
    Exporter("anthropic", anthropic_tool),
    Exporter("anthropic_strict", anthropic_strict_tool),
    Exporter("gemini", gemini_tool),
    Exporter("mcp", lambda entry, name, schema: mcp_tool(entry)),
)
