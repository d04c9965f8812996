"""Outcomes: a list says which of its sources are not well, to those who may have tools of theirs, and no more."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from mcp.client import Client

from pegboard import Catalog, Policy, Profile, http_app
from pegboard.model.record import replace
from pegboard.model.source_state import SourceState
from pegboard.model.tool import ToolEntry, ToolSpec
from tests.server.doors import answer_of, inside, post, served

KEY = "pegboard/sources"


class Upstream:
    """A source whose state and tools a test sets."""

    def __init__(self, name: str, group: str, *tools: str) -> None:
        self.name, self.group, self.tools = name, group, tools
        self.now = SourceState()

    def entries(self) -> Sequence[ToolEntry]:
        async def handler(ctx: Any, args: Any) -> str:
            return "done"

        specs = [ToolSpec(name=tool, namespace=self.name, groups=(self.group,)) for tool in self.tools]
        return [
            ToolEntry(spec=spec, handler=handler, runs="async", source=self.name, is_toolset=True) for spec in specs
        ]

    def groups(self) -> frozenset[str]:
        return frozenset({self.group})

    def state(self) -> SourceState:
        return self.now

    def subscribe(self, on_change: Callable[[], None]) -> None:
        pass

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass


def board() -> tuple[Catalog, Upstream, Upstream]:
    catalog = Catalog("board")
    files, mail = Upstream("files", "core", "read", "write"), Upstream("mail", "office")
    catalog.add_source(files)
    catalog.add_source(mail)
    catalog.profile(Profile(name="chat", include=("core",)))
    catalog.profile(Profile(name="office", include=("core", "office")))
    catalog.profile(Profile(name="narrow", include=("core", "office"), policy=Policy(deny=("mail__*", "files__*"))))
    catalog.profile(Profile(name="chosen", include=("core", "office"), policy=Policy(allow=("mail__se*",))))
    catalog.profile(Profile(name="other", include=("core", "office"), policy=Policy(allow=("files__read",))))
    return catalog, files, mail


async def told(catalog: Catalog, profile: str, *, ttl_ms: int = 60_000) -> Any:
    async with inside(http_app(catalog)) as client:
        result = answer_of(await post(client, "tools/list", path=f"/mcp/{profile}"))["result"]
    assert (result["ttlMs"], result["cacheScope"], result["resultType"]) == (ttl_ms, "private", "complete")
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "board"
    return result["_meta"].get(KEY)


async def test_while_all_sources_are_well_nothing_is_said_of_them() -> None:
    catalog = board()[0]
    assert await told(catalog, "office") is None


@pytest.mark.parametrize("status", ["connecting", "unreachable", "auth_required", "quarantined"])
async def test_each_outcome_is_told_without_its_reason(status: Any) -> None:
    catalog, _, mail = board()
    mail.now = SourceState(status=status, is_up=False, reason="connection to 10.0.0.1 refused")
    # What is still to come makes the list a short-lived one.
    ttl_ms = 1_000 if status == "connecting" else 60_000
    assert await told(catalog, "office", ttl_ms=ttl_ms) == {"files": {"status": "ok"}, "mail": {"status": status}}


async def test_a_source_with_tools_held_back_counts_as_quarantined() -> None:
    catalog, files, _ = board()
    files.now = SourceState(changed=frozenset({"files.read"}))
    assert (await told(catalog, "chat")) == {"files": {"status": "quarantined"}}


async def test_who_can_have_no_tool_of_a_source_does_not_hear_of_it() -> None:
    catalog, files, mail = board()
    mail.now = SourceState(status="unreachable", is_up=False)
    assert await told(catalog, "chat") is None
    files.now = mail.now
    assert await told(catalog, "narrow") is None
    assert await told(catalog, "chosen") == {"mail": {"status": "unreachable"}}
    assert await told(catalog, "other") == {"files": {"status": "unreachable"}}


async def test_clients_of_each_era_are_told_the_same() -> None:
    catalog, _, mail = board()
    mail.now = replace(mail.now, status="connecting", is_up=False)
    async with served(http_app(catalog)) as url:
        for mode in ("auto", "legacy"):
            async with Client(f"{url}/mcp/office", mode=mode) as client:
                meta = (await client.list_tools()).meta
                assert meta is not None
                assert meta[KEY] == {"files": {"status": "ok"}, "mail": {"status": "connecting"}}
