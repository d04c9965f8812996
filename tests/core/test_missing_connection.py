"""A tool whose caller has not connected their account: visible, not callable, with what to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from pegboard import CallError, Catalog, ToolContext
from pegboard.model.call_context import CallContext
from pegboard.model.caller import Caller
from pegboard.model.decision import Fix
from pegboard.model.json_types import JSON
from pegboard.model.source_state import SourceState
from pegboard.model.tool import ToolEntry, ToolSpec


class Accounts:
    """A source with one tool, where Ann has an account."""

    name = "mail"

    def __init__(self) -> None:
        self.is_away = False

    async def read(self, ctx: CallContext, args: JSON, /) -> str:
        return "a mail"

    def entries(self) -> Sequence[ToolEntry]:
        spec = ToolSpec(
            name="read",
            namespace="mail",
            description="Read the mail.",
            input_schema={"type": "object"},
            groups=("core",),
        )
        return [ToolEntry(spec=spec, handler=self.read, runs="async", source="mail")]

    def groups(self) -> frozenset[str]:
        return frozenset({"core"})

    def state(self) -> SourceState:
        return SourceState()

    def subscribe(self, on_change: Callable[[], None]) -> None:
        pass

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    async def missing_connection(self, caller: Caller) -> str | None:
        if self.is_away:
            raise CallError("storage_unavailable", "The store of connections does not answer.")
        return None if caller.user_id == "ann" else f"{caller.user_id!r} has no account at 'mail'"


@pytest.fixture
def catalog() -> Catalog:
    catalog = Catalog()
    catalog.add_source(Accounts())
    return catalog


async def test_a_tool_without_a_connection_is_visible_and_not_callable(catalog: Catalog) -> None:
    view = catalog.view(ToolContext(user_id="bob"))
    assert view.names() == ["read"]
    decision = await view.awhy("read")
    assert (decision.visible, decision.callable, decision.code) == (True, False, "visible")
    assert decision.blocked is not None
    assert (decision.blocked.kind, decision.blocked.reason) == (
        "connection_required", "'bob' has no account at 'mail'",
    )  # fmt: skip
    assert decision.fix == Fix("connection", "mail", "connect mail")
    assert str(decision) == (
        "visible, but refused (connection_required): 'bob' has no account at 'mail'. Fix: connect mail."
    )
    assert view.why("read").callable


async def test_with_a_connection_it_is_callable(catalog: Catalog) -> None:
    decision = await catalog.view(ToolContext(user_id="ann")).awhy("read")
    assert (decision.callable, decision.blocked, decision.fix) == (True, None, None)


async def test_a_store_that_does_not_answer_is_what_a_call_would_meet(catalog: Catalog) -> None:
    source = catalog.registry.sources["mail"]
    assert isinstance(source, Accounts)
    source.is_away = True
    decision = await catalog.view(ToolContext(user_id="ann")).awhy("read")
    assert decision.blocked is not None
    assert (decision.blocked.kind, decision.fix) == ("storage_unavailable", None)
    assert str(decision) == "visible, but refused (storage_unavailable): The store of connections does not answer."
