"""Probe: whether a store, a bus or an address that Pegboard depends on works now."""

from __future__ import annotations

from msgspec import Struct


class Probe(Struct, frozen=True, kw_only=True):
    """The result of one probe. `detail` is for operators and names no password; `seconds` is how long it took."""

    ok: bool
    detail: str = ""
    seconds: float = 0.0
