"""What the tests of the built-in tools share: a catalog with some of them, and calls through its door."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pegboard import Catalog, ToolContext, ToolError, ToolResult
from pegboard.sources.builtin.builtins import builtin_entry
from pegboard.sources.builtin.kind import Services
from tests.timing import PATIENCE_S

# A busy machine can reach the default limits of these tools. A test of a limit sets it.
PATIENT: dict[str, dict[str, Any]] = {
    "json_transform": {"timeout_seconds": PATIENCE_S},
    "sql_query": {"timeout_seconds": PATIENCE_S},
}


@dataclass
class Shelf:
    """A catalog of built-in tools."""

    catalog: Catalog = field(default_factory=Catalog)
    services: Services = field(default_factory=Services)

    def put(self, name: str, config: dict[str, Any] | None = None, *, as_name: str | None = None) -> Shelf:
        config = PATIENT.get(name, {}) | (config or {})
        self.catalog.register(builtin_entry(name, config=config, as_name=as_name, services=self.services))
        return self

    async def call(self, name: str, args: dict[str, Any] | None = None, **who: Any) -> ToolResult:
        caller: dict[str, Any] = {"user_id": "ann", "space_id": "s1"} | who
        return await self.catalog.view(ToolContext(**caller)).call(name, args or {})

    async def value(self, name: str, args: dict[str, Any] | None = None, **who: Any) -> Any:
        result = await self.call(name, args, **who)
        assert result.error is None, result.error
        return result.structured

    async def error(self, name: str, args: dict[str, Any] | None = None, **who: Any) -> ToolError:
        result = await self.call(name, args, **who)
        assert result.error is not None, result.structured
        return result.error


def shelf(name: str, config: dict[str, Any] | None = None, *, folder: Path | None = None, **services: Any) -> Shelf:
    """Return a shelf with one tool."""
    if folder is not None:
        services["folder"] = folder
    return Shelf(services=Services(**services)).put(name, config)
