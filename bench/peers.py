"""Peers: packages that stand in the bench environment alone; without one its lines are left out."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import Distribution
from typing import Any

# Not whether it can be imported: its client alone, `fastmcp-slim`, stands in the development environment.
HAS_FASTMCP = any(Distribution.discover(name="fastmcp"))


def load(module: str) -> Any:
    """Return a module of a peer, untyped: the type checker runs where it is not installed."""
    return import_module(module)
