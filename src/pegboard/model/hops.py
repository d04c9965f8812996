"""Hops: the servers that a request has passed, so that gateways which lead to each other do not go round.

A path is a list of server ids, oldest first. Each server adds its own when it asks another, in `_meta` over MCP and in
a header over HTTP. It says nothing of who asks, and gives no rights: whoever sends it can only be refused for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256

from pegboard.model.error import CallError
from pegboard.model.json_types import is_list

HOPS = 4  # servers that a request may have passed on its way here
HOP_ID_CHARS = 64  # of the id of one

HOPS_KEY = "pegboard/hops"
HOPS_HEADER = "pegboard-hops"

_ID = re.compile(r"[0-9A-Za-z_-]+")
_HEADER_CHARS = (HOPS + 1) * (HOP_ID_CHARS + 2)

Path = tuple[str, ...]


def server_id_of(*parts: bytes) -> str:
    """Return an id that is the same wherever the same parts are known, and tells nothing of them."""
    return sha256(b"".join(b"%d:%b" % (len(part), part) for part in (b"pegboard server", *parts))).hexdigest()[:32]


def path_of(said: object) -> Path | None:
    """Return the path that a message has; `None` for what is none, or longer than any that is sent."""
    if not is_list(said) or not 0 < len(said) <= HOPS + 1:
        return None
    ids = [each for each in said if isinstance(each, str) and len(each) <= HOP_ID_CHARS and _ID.fullmatch(each)]
    return tuple(ids) if len(ids) == len(said) else None


def header_of(path: Sequence[str]) -> str:
    """Return a path as a header has it."""
    return ",".join(path)


def ids_of_header(value: str) -> list[str]:
    """Return what a header says, unread; of one too long nothing that is a path."""
    return [each.strip(" \t") for each in value.split(",")] if len(value) <= _HEADER_CHARS else []


def path_through(said: object, server_id: str) -> Path:
    """Return the path of what a request to this server asks of others.

    Raises:
        CallError: `recursion_limit`: it was here before, has passed too many servers, or names them in no readable way.
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
    """Refuse to ask one server more.

    Raises:
        CallError: `recursion_limit`.
    """
    if len(path) > HOPS:
        text = (
            f"The call has gone through {HOPS} servers, and would go on to another; {HOPS} are the limit. "
            "Call the tool at the server that has it."
        )
        raise CallError("recursion_limit", text)
