"""Bounds: each limit of the core holds as the host sets it, and not only as it is by default."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pegboard import Bounds, CallError, Catalog, RateLimit, ToolContext, ToolSpec, Verdict
from pegboard.model.record import replace
from tests.core.parts import ANN, echo, kind_of, one_tool, spec

Act = Callable[[Catalog], Awaitable[object]]


# No machine is so slow that these run out; each test makes one of them small.
ROOMY = Bounds(predicate_s=60.0, hook_s=60.0, tool_timeout_s=60.0)


async def hold_on(ctx: Any) -> bool:
    await asyncio.sleep(0.05)
    return True


def hold_the_loop(ctx: Any) -> bool:
    ends = time.monotonic() + 0.05
    while time.monotonic() < ends:
        pass
    return True


async def work_long(ctx: Any, args: Any) -> None:
    await asyncio.sleep(0.05)


async def count(ctx: Any, args: Any) -> int:
    return len(args)


def calling(*, args: object = None, handler: Any = echo, **said: Any) -> Act:
    async def act(catalog: Catalog) -> str:
        return kind_of(await one_tool(handler, catalog=catalog, **said).view(ANN).call("echo", args))

    return act


def registering(schema: dict[str, Any]) -> Act:
    async def act(catalog: Catalog) -> str:
        try:
            catalog.register(ToolSpec(name="t", input_schema=schema), echo)
        except CallError as error:
            return error.error.kind
        return kind_of(await catalog.view(ANN).call("t", {}))

    return act


def asking(ask: Any, *, blocking: bool = False, by_name: bool = True) -> Act:
    async def act(catalog: Catalog) -> str:
        if by_name:
            catalog.predicate(name="ready", blocking=blocking)(ask)
        view = one_tool(catalog=catalog, available="ready" if by_name else ask).view(ToolContext(budget=None))
        return kind_of(await view.call("echo"))

    return act


class Shop(ToolContext):
    async def is_open(self) -> bool:
        return await hold_on(self)


async def ask_the_context(catalog: Catalog) -> str:
    shop = Catalog(bounds=catalog.registry.bounds, context_type=Shop)
    return kind_of(await one_tool(catalog=shop, available="is_open").view(Shop()).call("echo"))


async def build(catalog: Catalog) -> str:
    @catalog.builder("echo")
    async def _(ctx: ToolContext) -> object:
        await hold_on(ctx)
        return spec().bind(echo)

    return kind_of(await catalog.view(ToolContext()).call("echo"))


async def build_deep(catalog: Catalog) -> str:
    catalog.builder("echo")(lambda ctx: ToolSpec(name="echo", input_schema=nested(5)).bind(echo))
    return kind_of(await catalog.view(ToolContext()).call("echo"))


async def call_twice(catalog: Catalog) -> str:
    view = one_tool(catalog=catalog).view(ToolContext())
    await view.call("echo")
    return kind_of(await view.call("echo"))


async def call_at_once(catalog: Catalog) -> str:
    view = one_tool(work_long, catalog=catalog).view(ANN)
    found = [kind_of(result) for result in await asyncio.gather(view.call("echo"), view.call("echo"))]
    return found[1]


async def call_deep_down(catalog: Catalog) -> str:
    ctx = ANN.child().child()
    return kind_of(await one_tool(catalog=catalog).view(ctx).call("echo"))


async def call_wrongly(catalog: Catalog) -> str:
    view = one_tool(catalog=catalog, properties={}).view(ANN)
    for _ in range(2):
        await view.call("echo", {"wrong": 1})
    return kind_of(await view.call("echo"))


async def call_as_many(catalog: Catalog) -> str:
    one_tool(catalog=catalog, rate_limit=RateLimit(max_calls=9, window_s=60.0))
    await catalog.view(ToolContext(user_id="ann")).call("echo")
    return kind_of(await catalog.view(ToolContext(user_id="bob")).call("echo"))


async def before(catalog: Catalog) -> str:
    catalog.before()(hold_on_and_allow)
    return kind_of(await one_tool(catalog=catalog).view(ANN).call("echo"))


async def hold_on_and_allow(call: Any) -> None:
    await hold_on(call)


async def rewrite(catalog: Catalog) -> str:
    catalog.before()(lambda call: Verdict.replace({"n": min(call.args["n"] + 1, 2)}) if call.args["n"] < 2 else None)
    return kind_of(await one_tool(catalog=catalog).view(ANN).call("echo", {"n": 0}))


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels - 1):
        schema = {"type": "object", "properties": {"in": schema}}
    return schema


@pytest.mark.parametrize(
    ("smaller", "act", "refused"),
    [
        ({"request_body_bytes": 9}, calling(args=b'{"text": 1}'), "invalid_arguments"),
        ({"json_depth": 2}, calling(args={"a": [[1]]}), "invalid_arguments"),
        ({"integer_digits": 30}, calling(handler=count, args={"n": 10**30}), "invalid_arguments"),
        ({"integer_digits": 30}, calling(handler=count, args=b'{"n": 1%s}' % (b"0" * 30)), "invalid_arguments"),
        ({"object_keys": 2}, calling(args={"a": {"b": 1, "c": 2, "d": []}}), "invalid_arguments"),
        ({"json_keys": 2}, calling(args=b'{"a": {"b": {"c": 1}}}'), "invalid_arguments"),
        ({"schema_depth": 2}, registering(nested(4)), "schema_too_complex"),
        ({"subschemas": 3}, registering({"properties": {str(n): {} for n in range(20)}}), "schema_too_complex"),
        ({"schema_depth": 2}, build_deep, "not_found"),
        ({"calls_in_flight": 1}, call_at_once, "busy"),
        ({"agent_depth": 1}, call_deep_down, "recursion_limit"),
        ({"calls_per_request": 1}, call_twice, "budget_exceeded"),
        ({"invalid_calls_per_minute": 2}, call_wrongly, "rate_limited"),
        ({"ratelimit_keys": 1}, call_as_many, "rate_limited"),
        ({"tool_timeout_s": 0.001}, calling(handler=work_long), "timeout"),
        ({"tool_timeout_s": 0.001}, build, "not_found"),
        ({"predicate_s": 0.001}, asking(hold_on), "not_found"),
        ({"predicate_s": 0.001}, asking(hold_the_loop, blocking=True), "not_found"),
        ({"predicate_s": 0.001}, asking(hold_the_loop), "not_found"),
        ({"predicate_s": 0.001}, asking(hold_on, by_name=False), "not_found"),
        ({"predicate_s": 0.001}, ask_the_context, "not_found"),
        ({"hook_s": 0.001}, before, "hook_refused"),
        ({"argument_rewrites": 1}, rewrite, "hook_refused"),
        ({"result_bytes": 10}, calling(args={"text": "x" * 20}), "result_too_large"),
    ],
)
async def test_a_limit_holds_as_it_is_set(smaller: dict[str, Any], act: Act, refused: str) -> None:
    assert await act(Catalog(bounds=ROOMY)) == "ok"
    assert await act(Catalog(bounds=replace(ROOMY, **smaller))) == refused
