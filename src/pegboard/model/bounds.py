"""Bounds: the limits that an operator can set, under `limits:` in the config."""

from __future__ import annotations

from msgspec import Struct

KIB = 1024
MIB = 1024 * KIB


class Bounds(Struct, frozen=True, kw_only=True):
    """The limits of one process. Sizes in bytes, times in seconds."""

    # Incoming requests
    request_body_bytes: int = 4 * MIB
    json_depth: int = 64
    integer_digits: int = 1_000
    object_keys: int = 10_000
    json_keys: int = 50_000
    json_values: int = 150_000
    header_s: float = 10.0
    body_s: float = 30.0
    message_line_bytes: int = 16 * MIB
    upload_bytes: int = 100 * MIB
    document_chars: int = 20_000_000
    invalid_calls_per_minute: int = 300

    # Declarations
    schema_depth: int = 32
    subschemas: int = 2_000
    schema_steps: int = 4_500_000
    description_bytes: int = 4 * KIB

    # Calls
    calls_in_flight: int = 1_000
    agent_depth: int = 8
    calls_per_request: int = 100
    use_tools_calls: int = 50
    tool_timeout_s: float = 30.0
    agent_timeout_s: float = 120.0
    predicate_s: float = 1.0
    hook_s: float = 1.0
    argument_rewrites: int = 3
    result_bytes: int = 1 * MIB
    ratelimit_keys: int = 100_000
    limit_store_s: float = 1.0

    # Responses from other servers
    upstream_list_bytes: int = 8 * MIB
    upstream_pages: int = 100
    upstream_tools: int = 1_000
    api_description_bytes: int = 32 * MIB
    api_operations: int = 5_000
    http_response_bytes: int = 5 * MIB
    http_redirects: int = 5
    answer_values: int = 300_000
    answer_containers: int = 75_000
    stderr_ring_bytes: int = 64 * KIB
    sql_s: float = 5.0
    sql_rows: int = 1_000
    sql_result_bytes: int = 1 * MIB


def share_of_one(places: int) -> int:
    """Return the number of places that one caller may take: three quarters, so that some remain for others."""
    return max(1, places * 3 // 4)


DEFAULT_BOUNDS = Bounds()
