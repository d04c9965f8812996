"""Span names: the names and attributes of OpenTelemetry spans.

Sources: the semantic conventions for generative AI and MCP of OpenTelemetry. Both are in development and have moved
between packages, so the strings are kept here. Attributes that no convention has begin with `pegboard.`.
"""

from __future__ import annotations

from typing import Final

TOOLS_CALL: Final = "tools/call"
EXECUTE_TOOL: Final = "execute_tool"
INVOKE_AGENT: Final = "invoke_agent"
STAGE_PREFIX: Final = "pegboard."

OPERATION: Final = "gen_ai.operation.name"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
AGENT_NAME: Final = "gen_ai.agent.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"

MCP_METHOD: Final = "mcp.method.name"
MCP_VERSION: Final = "mcp.protocol.version"
MCP_SESSION: Final = "mcp.session.id"
JSONRPC_ID: Final = "jsonrpc.request.id"
TRANSPORT: Final = "network.transport"
ERROR_TYPE: Final = "error.type"
TOOL_ERROR: Final = "tool_error"

HTTP_METHOD: Final = "http.request.method"
HTTP_STATUS: Final = "http.response.status_code"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"

CALL_OUTCOME: Final = "pegboard.outcome"
TOOL_ID: Final = "pegboard.tool.id"
PROFILE: Final = "pegboard.profile"
DOOR: Final = "pegboard.door"
REQUEST_ID: Final = "pegboard.request.id"
RUN_STATUS: Final = "pegboard.run.status"
