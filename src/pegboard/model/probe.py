"""Probe: a check that a store, a bus or an address that Pegboard depends on works now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

from msgspec import Struct

PartKind = Literal["store", "bus", "server", "model", "documents", "host"]
"""`host` is what the machine provides: its clock, and the certificate of the server."""


class Probe(Struct, frozen=True, kw_only=True):
    """The result of one probe. `detail` is for operators and names no password; `seconds` is how long it took."""

    ok: bool
    detail: str = ""
    seconds: float = 0.0


class Part(Struct, frozen=True, kw_only=True):
    """A store, bus, server or live source of documents that a catalog depends on. `check` raises if it does not work.

    `where` is its place in the config. If a part with `is_required` is away, calls fail; other parts are needed only by
    some tools. `source` is the source that must have started before the address of the part is known. `to_do` is what
    an operator can do if it does not work; empty for the usual advice.
    """

    kind: PartKind
    name: str
    where: str
    check: Callable[[], Awaitable[None]]
    is_required: bool = False
    source: str = ""
    to_do: str = ""
