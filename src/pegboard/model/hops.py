"""Hops: the servers that a request has passed, to stop loops between gateways.

A path is a list of server ids, oldest first. Each server appends its own id when it asks another, in `_meta` over MCP
and in a header over HTTP. The path is not an identity and gives no rights: a forged path can only get a request
refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256

from pegboard.model.error import CallError
from pegboard.model.json_types import is_list

HOPS = 4  # servers that a request may pass on its way here
HOP_ID_CHARS = 64  # characters of a server id

HOPS_KEY = "pegboard/hops"
HOPS_HEADER = "pegboard-hops"

_ID = re.compile(r"[0-9A-Za-z_-]+")
_HEADER_CHARS = (HOPS + 1) * (HOP_ID_CHARS + 2)

Path = tuple[str, ...]


def server_id_of(*parts: bytes) -> str:
    """Return an id that is the same wherever the same parts are known, and reveals nothing about them."""
    return sha256(b"".join(b"%d:%b" % (len(part), part) for part in (b"pegboard server", *parts))).hexdigest()[:32]


def path_of(said: object) -> Path | None:
    """Return the path in a message; `None` if it is not a path, or longer than any that we send."""
    if not is_list(said) or not 0 < len(said) <= HOPS + 1:
        return None
    ids = [each for each in said if isinstance(each, str) and len(each) <= HOP_ID_CHARS and _ID.fullmatch(each)]
    return tuple(ids) if len(ids) == len(said) else None


def header_of(path: Sequence[str]) -> str:
    """Return a path as a header value."""
    return ",".join(path)


def ids_of_header(value: str) -> list[str]:
    """Split a header value into ids without checking them; a header that is too long gives an invalid path."""
    return [each.strip(" \t") for each in value.split(",")] if len(value) <= _HEADER_CHARS else []


def path_through(said: object, server_id: str) -> Path:
    """Return the path to send with the outgoing requests of a request to this server.

    Raises:
        CallError: `recursion_limit`: the request was here before, passed too many servers, or has an unreadable path.
    """
    path = path_of(said)
    if path is None or len(path) > HOPS:
        text = (
            f"The request names the servers that it has passed in a way that is not taken: a list of 1 to {HOPS} ids "
            "is. Call the tool at the server that has it."
        )
        raise CallError("recursion_limit", text)
    if server_id in path:
        text = (
            "The request has passed this server before: two servers are each other's source. Call the tool at the "
            "server that has it; operators: take one of the two sources away."
        )
        raise CallError("recursion_limit", text)
    return (*path, server_id)


def check_may_leave(path: Path) -> None:
    """Refuse to send a request to one more server if the path is full.

    Raises:
        CallError: `recursion_limit`.
    """
    if len(path) > HOPS:
        text = (
            f"The call has gone through {HOPS} servers, and would go on to another; {HOPS} are the limit. "
            "Call the tool at the server that has it."
        )
        raise CallError("recursion_limit", text)
