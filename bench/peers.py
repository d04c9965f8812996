"""Peers: packages that stand in the bench environment alone; without one its lines are left out."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

HAS_FASTMCP = find_spec("fastmcp") is not None


def load(module: str) -> Any:
    """Return a module of a peer, untyped: the type checker runs where it is not installed."""
    return import_module(module)
