"""Listing: collects all pages of a server's tools, within limits, and keeps the valid ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec import Struct, field

from pegboard.core.definition_redaction import DefinitionRedactor
from pegboard.core.json_text import json_bytes
from pegboard.model.bounds import Bounds
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.json_types import JSON, is_list, is_object
from pegboard.model.record import replace
from pegboard.sources.foreign_text import cleaned
from pegboard.sources.mcp.definition_changes import skeleton
from pegboard.sources.mcp.definitions import MCP_NAME_CHARS, Rejected, UnfitError, checked_definition
from pegboard.sources.mcp.server_settings import ServerSettings
from pegboard.sources.mcp.turns import Turns

MCP_NAME_SHOWN_BYTES = 128  # bytes shown of a refused tool's name


class Listing(Struct, frozen=True, kw_only=True):
    """The tools of a server at one moment, by original name.

    `partial` says which limit cut the list short. `ways` has the ids of the servers behind each tool of a Pegboard, the
    nearest first.
    """

    tools: dict[str, JSON] = field(default_factory=dict[str, JSON])
    rejected: tuple[Rejected, ...] = ()
    partial: str = ""
    ttl_s: float | None = None
    ways: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


Page = Callable[[str | None], Awaitable[JSON]]


def _no_fault(_definition: JSON) -> None:
    return None


async def gather(
    page: Page,
    settings: ServerSettings,
    *,
    fault_of: Callable[[JSON], str | None] = _no_fault,
) -> Listing:
    """Request page after page, and validate each tool separately; `fault_of` may find further faults.

    Raises:
        CallError: `result_too_large`, if the list exceeds the bound; errors of the pages.
    """
    bounds = settings.bounds
    tools: list[object] = []
    cursors: list[str | None] = [None]
    size, ttl_s = 0, None
    while True:
        answer = await page(cursors[-1])
        page_tools = answer.get("tools")
        if not is_list(page_tools):
            raise CallError("protocol_error", f"{settings.name!r} sent a list of tools that is none.")
        # The SDK has just created an object for each tool.
        await asyncio.sleep(0)
        size += sum(map(_size, page_tools))
        if size > bounds.upstream_list_bytes:
            text = f"The list of {settings.name!r} is larger than {bounds.upstream_list_bytes} bytes; it was refused."
            raise CallError("result_too_large", text)
        tools.extend(page_tools)
        ttl_s = answer["ttlMs"] / 1000 if isinstance(answer.get("ttlMs"), int | float) else ttl_s
        following = answer.get("nextCursor")
        partial = _limit_met(following, cursors, len(tools), bounds)
        if partial or not isinstance(following, str):
            break
        cursors.append(following)
    listing = await _checked(tools[: bounds.upstream_tools], settings, fault_of)
    return replace(listing, partial=partial, ttl_s=ttl_s)


def _size(tool: object) -> int:
    try:
        return len(json_bytes(tool))
    except ValueError:
        # Too deep to serialise: it is refused separately, and its size was limited on the way.
        return 0


def _limit_met(following: object, cursors: Sequence[str | None], count: int, bounds: Bounds) -> str:
    """Return the limit that ends the list here, in words; empty if there is none."""
    if count > bounds.upstream_tools or (count == bounds.upstream_tools and isinstance(following, str)):
        return f"it has more than {bounds.upstream_tools} tools"
    if not isinstance(following, str):
        return ""
    if following in cursors:
        return "its pages repeat"
    return f"it has more than {bounds.upstream_pages} pages" if len(cursors) >= bounds.upstream_pages else ""


async def _checked(
    offered: Sequence[object],
    settings: ServerSettings,
    fault_of: Callable[[JSON], str | None],
) -> Listing:
    tools: dict[str, JSON] = {}
    rejected: list[Rejected] = []
    names = [raw["name"] for raw in offered if is_object(raw) and isinstance(raw.get("name"), str)]
    plain = {skeleton(name[:MCP_NAME_CHARS]): name for name in names if name.isascii()}
    # Before pinning, since a lock file is committed to version control.
    redactor = DefinitionRedactor(settings.secrets())
    turns = Turns()
    for raw in offered:
        await turns.next()
        shown = cleaned(str(raw.get("name") if is_object(raw) else None), max_bytes=MCP_NAME_SHOWN_BYTES)
        try:
            definition = redactor.definition(checked_definition(raw, bounds=settings.bounds))
        except UnfitError as error:
            rejected.append(Rejected(shown, str(error)))
            continue
        except DefinitionError as error:
            rejected.append(Rejected(redactor.text(shown), str(error)))
            continue
        name: str = definition["name"]
        if not settings.takes(name):
            continue
        fault = _fault_of_name(name, tools, plain) or fault_of(definition)
        if fault:
            rejected.append(Rejected(shown, fault))
        else:
            tools[name] = definition
    return Listing(tools=tools, rejected=tuple(rejected))


def _fault_of_name(name: str, tools: Mapping[str, JSON], plain: Mapping[str, str]) -> str:
    """Return why a name conflicts with others of its server; empty if it does not."""
    if name in tools:
        return "another tool of the server has that name"
    twin = None if name.isascii() else plain.get(skeleton(name))
    if twin is None:
        return ""
    # A lookalike in another alphabet, made to be confused with the other name.
    return f"its name is drawn like that of another tool, {cleaned(twin, max_bytes=MCP_NAME_SHOWN_BYTES)!r}"
