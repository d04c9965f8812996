"""Somebody who knows FastMCP learns from the error what a method is called here."""

from dataclasses import dataclass
from typing import Any

import pytest

from pegboard import CallContext, Catalog, ToolContext


async def test_methods_of_fastmcps_context_and_server_are_named_in_the_error(caplog: pytest.LogCaptureFixture) -> None:
    catalog = Catalog("shop")

    @catalog.tool
    async def old(ctx: CallContext) -> str:
        """Log as in FastMCP."""
        await ctx.info("hello")  # type: ignore[attr-defined]
        return "done"

    assert (await catalog.view(ToolContext()).call("old")).is_error
    assert "'CallContext' object has no attribute 'info'. Use `ctx.log(message)`" in caplog.text
    with pytest.raises(AttributeError, match=r"no attribute 'run'. Use `run_stdio\(catalog\)`"):
        catalog.run()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        catalog.nothing  # type: ignore[attr-defined]  # noqa: B018


class Shop(Catalog):
    @property
    def stock(self) -> str:
        raise AttributeError("the shelf has no 'apples'")


@dataclass(frozen=True, kw_only=True, eq=False)
class Visit(CallContext):
    @property
    def stock(self) -> str:
        raise AttributeError("the shelf has no 'apples'")


async def no_events(*_: Any, **__: Any) -> None:
    pass


@pytest.mark.parametrize(
    "owner", [Shop(), Visit(origin_context=ToolContext(), emitter=no_events)], ids=["catalog", "context"]
)
def test_a_property_that_fails_says_why_itself(owner: Shop | Visit) -> None:
    with pytest.raises(AttributeError, match=r"^the shelf has no 'apples'$"):
        owner.stock  # noqa: B018
