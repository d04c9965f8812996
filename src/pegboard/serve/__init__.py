"""serve: the doors of a catalog to other programs. MCP over streamable HTTP and stdio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pegboard.base.loading import Later

if TYPE_CHECKING:
    from pegboard.serve.http import http_app, run_http
    from pegboard.serve.stdio import run_stdio

__all__ = ["http_app", "run_http", "run_stdio"]
# Each door loads only what is its own: a server on stdio starts without Starlette.
_HOMES = {"http_app": "http", "run_http": "http", "run_stdio": "stdio"}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(Later(f"{__name__}.{home}"), name)
