"""A source that lists its tools over the account of each person: whoever is connected has them at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from pegboard import Catalog, ToolContext
from pegboard.model.call_context import CallContext
from pegboard.model.caller import Caller
from pegboard.model.json_types import JSON
from pegboard.model.resource import ResourceSpec
from pegboard.model.source_state import SourceState
from pegboard.model.tool import ToolEntry, ToolSpec


class Mail:
    """A source whose tool is known once Ann, who is connected, has been listed."""

    name = "mail"

    def __init__(self) -> None:
        self.listed: list[str | None] = []
        self.on_change: list[Callable[[], None]] = []
        self.has_resources = False

    async def read(self, ctx: CallContext, args: JSON, /) -> str:
        return f"the mail of {ctx.user_id}"

    def entries(self) -> Sequence[ToolEntry]:
        spec = ToolSpec(
            name="read", namespace="mail", description="Read.", input_schema={"type": "object"}, groups=("core",)
        )
        entry = ToolEntry(spec=spec, handler=self.read, runs="async", source="mail", is_toolset=True)
        return [entry] if "ann" in self.listed else []

    def groups(self) -> frozenset[str]:
        return frozenset({"core"})

    def state(self) -> SourceState:
        return SourceState()

    def subscribe(self, on_change: Callable[[], None]) -> None:
        self.on_change.append(on_change)

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    def is_starting_for(self, caller: Caller) -> bool:
        return caller.user_id not in self.listed

    async def list_for(self, caller: Caller) -> None:
        await self.list_first(caller)

    async def list_first(self, caller: Caller) -> bool:
        if caller.user_id != "ann" or not self.is_starting_for(caller):
            return False
        self.listed.append(caller.user_id)
        for tell in self.on_change:
            tell()
        return True

    def resource_entries(self) -> Sequence[ToolEntry]:
        spec = ToolSpec(name="inbox", namespace="resource", input_schema={"type": "object"}, groups=("core",))
        offer = ResourceSpec(uri="mail://inbox", name="inbox")
        return [ToolEntry(spec=spec, handler=self.read, runs="async", source="mail", offer=offer)] * self.has_resources

    async def list_resources_first(self, caller: Caller) -> bool:
        if caller.user_id != "ann" or self.has_resources:
            return False
        self.has_resources = True
        for tell in self.on_change:
            tell()
        return True


class SharedMail(Mail):
    """The same, but the tool was listed for somebody else before, and has a condition."""

    def entries(self) -> Sequence[ToolEntry]:
        spec = ToolSpec(
            name="read", namespace="mail", description="Read.", input_schema={"type": "object"}, groups=("core",),
            available=lambda ctx: ctx.user_id in self.listed,
        )  # fmt: skip
        return [ToolEntry(spec=spec, handler=self.read, runs="async", source="mail", is_toolset=True)]


@pytest.fixture
def catalog() -> Catalog:
    catalog = Catalog()
    catalog.add_source(Mail())
    return catalog


async def test_a_call_finds_the_tool_in_a_process_that_has_not_listed_it_yet(catalog: Catalog) -> None:
    result = await catalog.view(ToolContext(user_id="ann")).call("mail__read", {})
    assert result.text == "the mail of ann"


async def test_a_call_finds_a_tool_that_was_hidden_until_the_source_listed_for_its_caller() -> None:
    for _ in range(2):  # a condition that never ran is asked in a thread, a known one at once
        catalog = Catalog()
        catalog.add_source(SharedMail())
        result = await catalog.view(ToolContext(user_id="ann")).call("mail__read", {})
        assert result.text == "the mail of ann"
        refused = await catalog.view(ToolContext(user_id="bob")).call("mail__read", {})
        assert refused.error is not None
        assert refused.error.kind == "not_found"


async def test_a_list_of_resources_has_those_that_it_made_known(catalog: Catalog) -> None:
    for user, uris in (("bob", []), ("ann", ["mail://inbox"])):
        view = await catalog.resources.view(ToolContext(user_id=user)).prepare()
        assert [spec.uri for _, spec in catalog.resources.resources(view)] == uris
    assert await catalog.resources.find_resource("mail://other", view) is None


async def test_a_list_has_the_tools_that_it_made_known(catalog: Catalog) -> None:
    view = await catalog.aview(ToolContext(user_id="ann"))
    assert view.names() == ["mail__read"]
    assert (await catalog.aview(ToolContext(user_id="ann"))).names() == ["mail__read"]


async def test_why_finds_the_tool_too(catalog: Catalog) -> None:
    assert (await catalog.view(ToolContext(user_id="ann")).awhy("mail__read")).visible


async def test_an_unknown_name_and_an_unconnected_caller_get_the_usual_answer(catalog: Catalog) -> None:
    for user, name in (("bob", "mail__read"), ("bob", "letters__read"), ("ann", "mail__write")):
        view = catalog.view(ToolContext(user_id=user))
        result = await view.call(name, {})
        assert result.error is not None
        assert result.error.kind == "not_found"
        assert (await view.awhy(name)).code == "unknown"
