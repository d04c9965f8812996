"""Bounds: the limits that an operator can set, under `limits:` in the config."""

from __future__ import annotations

from msgspec import Struct

KIB = 1024
MIB = 1024 * KIB


class Bounds(Struct, frozen=True, kw_only=True):
    """The limits of one process. Sizes in bytes, times in seconds."""

    # Incoming requests
    request_body_bytes: int = 4 * MIB  # the body of a request
    json_depth: int = 64  # levels of nested JSON
    integer_digits: int = 1_000  # digits of an integer
    object_keys: int = 10_000  # keys of one JSON object
    json_keys: int = 50_000  # keys in a whole message
    json_values: int = 150_000  # values in a whole message
    header_s: float = 10.0  # the time until the headers of a request have arrived
    body_s: float = 30.0  # the time until the body of a request has arrived
    message_line_bytes: int = 16 * MIB  # one message over stdio
    upload_bytes: int = 100 * MIB  # one uploaded document
    document_chars: int = 20_000_000  # characters of text in one document
    invalid_calls_per_minute: int = 300  # calls of one caller with invalid arguments or unknown names

    # Declarations
    schema_depth: int = 32  # levels of a tool's schema
    subschemas: int = 2_000  # parts of a tool's schema
    schema_steps: int = 4_500_000  # steps to validate a value; 4,500,000 take about 18 ms
    description_bytes: int = 4 * KIB  # the description of a tool

    # Calls
    calls_in_flight: int = 1_000  # calls that run at the same time in a process
    agent_depth: int = 8  # levels of agents that call agents
    calls_per_request: int = 100  # calls of one request, including the calls of its agents
    use_tools_calls: int = 50  # calls in one batch of `useTools`
    tool_timeout_s: float = 30.0  # the run of a tool without its own timeout
    agent_timeout_s: float = 120.0  # the run of an agent without its own timeout
    predicate_s: float = 1.0  # one predicate
    hook_s: float = 1.0  # one hook, or one guardrail of an agent
    argument_rewrites: int = 3  # replacements of the arguments by before-hooks in one call
    result_bytes: int = 1 * MIB  # the result of a call
    ratelimit_keys: int = 100_000  # counters of rate limits and budgets in memory
    limit_store_s: float = 1.0  # the wait of a call for the store of rate limits

    # Responses from other servers
    upstream_list_bytes: int = 8 * MIB  # a list, or one event, of an MCP server
    upstream_pages: int = 100  # pages of an MCP server's list
    upstream_tools: int = 1_000  # tools of one MCP server
    api_description_bytes: int = 32 * MIB  # an OpenAPI document
    api_operations: int = 5_000  # operations of an OpenAPI document
    http_response_bytes: int = 5 * MIB  # the response of a web service
    http_redirects: int = 5  # redirects of one request
    answer_values: int = 300_000  # values in a JSON response
    answer_containers: int = 75_000  # objects and lists in a JSON response
    stderr_ring_bytes: int = 64 * KIB  # the last part of a server's stderr, kept for error messages
    sql_s: float = 5.0  # one query of `sql_query` or `query_documents`
    sql_rows: int = 1_000  # rows returned by `sql_query`
    sql_result_bytes: int = 1 * MIB  # the result of `sql_query`


def share_of_one(places: int) -> int:
    """Return the number of places that one caller may take: three quarters, so that some remain for others."""
    return max(1, places * 3 // 4)


DEFAULT_BOUNDS = Bounds()
