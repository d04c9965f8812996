"""Contexts: what a call gets, what a child may change, what can be asked of the client."""

import ast
import gc
import inspect
import weakref
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path
from typing import Any

import pytest

from pegboard import CallBudget, CallContext, CallError, Catalog, DefinitionError, Policy, ToolContext
from pegboard.model import context as context_module
from pegboard.model.caller import Caller
from pegboard.model.context import context_fields
from pegboard.model.host import Host
from pegboard.model.record import replace
from pegboard.model.request import Request
from tests.core.parts import ANN, Recorder, kind_of, one_tool


@dataclass(frozen=True, kw_only=True)
class Desk(ToolContext):
    """A host's own context."""

    plan: str = "free"


async def inside(ctx: ToolContext, ask: Any) -> Any:
    """Return what `ask(ctx)` gives inside a call, as the result of that call."""

    async def work(call: CallContext, args: Any) -> Any:
        return await ask(call)

    return await one_tool(work).view(ctx).call("echo")


def test_a_context_is_frozen_and_its_roles_are_a_set() -> None:
    ctx = ToolContext(roles=["reader", "reader"])
    assert ctx.roles == {"reader"}
    with pytest.raises(FrozenInstanceError):
        ctx.user_id = "root"  # type: ignore[misc]
    assert ToolContext().request_id != ToolContext().request_id


def test_a_copy_of_a_context_starts_with_a_fresh_memo() -> None:
    assert replace(ANN, user_id="bob").memo is not ANN.memo


def test_a_child_keeps_the_class_and_narrows_the_policy() -> None:
    parent = Desk(plan="pro", user_id="ann", policy=Policy(deny=("x",)), parent_call="p")
    child = parent.child(agent="bot", policy=Policy(allow=("y",)), conversation=["hi"])
    assert isinstance(child, Desk)
    assert (type(child), child.plan, child.agent, child.conversation, child.depth) == (Desk, "pro", "bot", ["hi"], 1)
    assert parent.child().agent is None
    assert parent.child().policy == parent.policy
    catalog = Catalog()
    for name in ("x", "y", "z"):
        catalog.tool(name=name)(lambda: None)
    assert catalog.view(child).names() == ["y"]


def test_a_child_of_a_call_names_it_as_its_parent() -> None:
    with pytest.raises(DefinitionError, match="keeps its parent's user_id"):
        ANN.child(user_id="root")
    assert ANN.child(parent_call="c-1").parent_call == "c-1"


async def test_a_child_made_inside_a_call_is_a_plain_context_of_the_hosts_class() -> None:
    seen: list[ToolContext] = []

    async def ask(call: CallContext) -> str:
        seen.append(call.child(agent="inner"))
        return call.call_id

    result = await inside(Desk(plan="pro"), ask)
    assert (type(seen[0]), seen[0].parent_call, seen[0].depth) == (Desk, result.text, 1)


def test_an_unknown_change_of_a_child_is_refused() -> None:
    with pytest.raises((DefinitionError, TypeError)):
        ANN.child(converzation=["hi"])


async def test_a_step_outside_a_task_simply_runs() -> None:
    async def later(n: int) -> int:
        return n + 1

    async def ask(call: CallContext) -> list[int]:
        return [await call.step("sync", lambda n: n * 2, 4), await call.step("async", later, 4)]

    async def ask_by_hand(call: CallContext) -> list[int]:
        # As a context that is made without a call.
        return await ask(replace(call, call=None))

    assert (await inside(ANN, ask)).structured == [8, 5]
    assert (await inside(ANN, ask_by_hand)).structured == [8, 5]


class Bridge:
    """A client whose person answers."""

    supports_ui = True

    async def elicit(self, message: str, schema: Any = None) -> Any:
        return {"asked": message, "schema": schema}

    async def approve(self, request: Any) -> bool | None:
        return None


class Steps:
    """The durable side of a task, in memory."""

    task_id = call_id = "t1"

    def __init__(self) -> None:
        self.stored: dict[str, object] = {}
        self.reached = 0.0

    async def step(
        self, name: str, run: Any, args: tuple[object, ...], *, retries: int, timeout_s: float | None
    ) -> object:
        if name not in self.stored:
            value = run(*args)
            self.stored[name] = await value if inspect.isawaitable(value) else value
        return self.stored[name]

    async def ask(self, question: str, schema: Any) -> Any:
        return f"answered {question}"

    def progress(self, fraction: float, message: str) -> None:
        self.reached = fraction


async def test_a_tool_asks_the_person_behind_the_call() -> None:
    schema = {"type": "string"}
    result = await inside(replace(ANN, client=Bridge()), lambda call: call.ask("Which one?", schema=schema))
    assert result.structured == {"asked": "Which one?", "schema": schema}
    nobody = await inside(ANN, lambda call: call.ask("Which one?"))
    assert (kind_of(nobody), "Which one?" in nobody.text) == ("consent_required", True)


async def test_inside_a_task_steps_are_stored_and_questions_wait() -> None:
    steps, ran = Steps(), list[int]()

    async def ask(call: CallContext) -> Any:
        durable = replace(call, steps=steps)
        values = [await durable.step("count", lambda: ran.append(1) or len(ran)) for _ in range(3)]
        await durable.progress(0.5)
        return {"values": values, "answer": await durable.ask("Go on?")}

    assert (await inside(ANN, ask)).structured == {"values": [1, 1, 1], "answer": "answered Go on?"}
    assert steps.reached == 0.5


async def test_the_services_and_factories_of_the_host_are_at_hand() -> None:
    ctx = replace(ANN, services={"db": 3}, factories={"make": lambda n: n + 1}, settings={"lang": "de"})

    async def ask(call: CallContext) -> Mapping[str, Any]:
        return {"db": call.services["db"], "made": call.factory("make")(1), "lang": call.settings["lang"]}

    assert (await inside(ctx, ask)).structured == {"db": 3, "made": 2, "lang": "de"}
    with pytest.raises(KeyError):
        ctx.factory("other")


async def test_events_of_calls_on_one_context_share_its_sequence_and_copies_start_anew() -> None:
    recorder = Recorder()
    view = one_tool().view(replace(ANN, callbacks=recorder))
    await view.call("echo")
    await one_tool().view(replace(ANN, callbacks=recorder)).call("echo")
    assert [event.seq for event in recorder.events] == [0, 1, 0, 1]


def test_a_host_may_spend_from_a_budget_itself() -> None:
    budget = CallBudget()
    for _ in range(100):
        budget.spend()
    with pytest.raises(CallError, match="has made its 100 calls"):
        budget.spend()
    assert budget.used == 100


@pytest.mark.parametrize("fails", [False, True])
async def test_what_a_call_holds_is_freed_with_it_and_not_by_the_next_collection(*, fails: bool) -> None:
    held = list[weakref.ref[Any]]()

    async def work(call: CallContext, args: Any) -> str:
        held.append(weakref.ref(call))
        await call.progress(0.5)
        if fails:
            raise CallError("upstream_error", "The backend said 500.")
        return "fine"

    catalog = one_tool(work)
    catalog.before()(lambda call: held.append(weakref.ref(call)))
    catalog.on_complete()(lambda call, result: held.append(weakref.ref(call.ctx)))
    catalog.observe(Recorder())
    gc.disable()
    try:
        await catalog.view(ANN).call("echo", {"text": "x" * 1_000})
        assert [ref() for ref in held] == [None] * 3
    finally:
        gc.enable()


def test_the_flat_fields_that_type_checkers_see_are_those_that_there_are() -> None:
    tree = ast.parse(Path(context_module.__file__).read_text(encoding="utf-8"))
    faces = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == "_Face"]
    seen = {
        item.target.id
        for item in faces[0].body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    assert seen == context_fields(ToolContext)
    assert all(hasattr(ToolContext(), name) for name in seen)


def test_a_context_is_made_of_three_values_and_copied_by_its_flat_fields() -> None:
    caller, host = Caller(user_id="ann"), Host(settings={"lang": "de"})
    ctx = Desk(caller=caller, host=host, request=Request("r1"), plan="pro")  # type: ignore[call-arg]
    assert (ctx.caller, ctx.host, ctx.request_id, ctx.budget, ctx.plan) == (caller, host, "r1", None, "pro")
    copied = replace(ctx, space_id="s1", deadline=3.0)
    assert (copied.user_id, copied.space_id, copied.deadline, copied.plan) == ("ann", "s1", 3.0, "pro")
    assert copied.host is host
    assert (replace(ctx, plan="free").memo is ctx.memo, replace(ctx).memo is ctx.memo) == (False, False)
    assert hash(caller) == hash(Caller(user_id="ann"))
    with pytest.raises(TypeError, match="usr"):
        ToolContext(usr="ann")  # type: ignore[call-arg]
    with pytest.raises(DefinitionError, match="wrap it"):
        Host(secrets={"key": "plain"})  # type: ignore[dict-item]


async def test_calls_inside_a_call_ask_nothing_anew_and_their_events_go_on() -> None:
    asked: list[str] = []
    recorder = Recorder()
    inner = one_tool(available=lambda ctx: not asked.append("asked"))

    async def work(call: CallContext, args: Any) -> Any:
        within = call.plain().inside(host=call.host, request=call.request._replace(parent_call=call.call_id))
        return (await inner.view(within).call("echo")).text

    outer = one_tool(work, available=lambda ctx: not asked.append("outer"))
    ctx = Desk(plan="pro", callbacks=recorder)
    assert inner.view(ctx).names() == ["echo"]
    await outer.view(ctx).call("echo")
    assert asked == ["asked", "outer"]
    assert [event.seq for event in recorder.events] == [0, 1, 2, 3]
    assert recorder.events[1].parent_call_id == recorder.events[0].call_id
