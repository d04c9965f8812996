"""useTools: batches, each call guarded on its own and told on its own."""

import asyncio
from typing import Any

import pytest

from pegboard import Bounds, CallContext, Catalog, ImageContent, Profile, ToolContext, ToolSpec
from pegboard.model.rate_limit import RateLimit
from pegboard.model.tool import Annotations
from tests.core.parts import FakeSource, foreign
from tests.discovery.calling import say, use, view_of
from tests.discovery.shops import give_back, shop

OK = {"agent": "photos", "tool": "list_photo", "params": {"name": "sea"}}
BAD = {"agent": "photos", "tool": "list_photo", "params": {}}


@pytest.fixture
def catalog() -> Catalog:
    return shop(things=("ticket", "photo"))


async def test_each_call_is_told_apart_and_in_order(catalog: Catalog) -> None:
    answer = await use(catalog, OK, {**OK, "tool": "create_photo"})
    ids = [item.pop("call_id") for item in answer["data"]["results"]]
    assert len(set(ids)) == 2
    assert answer == {
        "success": True,
        "data": {
            "results": [
                {
                    "index": index,
                    "agent": "photos",
                    "tool": tool,
                    "success": True,
                    "data": {"tool": tool, "name": "sea"},
                }
                for index, tool in enumerate(("list_photo", "create_photo"))
            ]
        },
    }


@pytest.mark.parametrize(
    "call",
    [
        {"agent": "photos", "tool": "list_photo", "parameters": {"name": "sea"}},
        {"agent": "photos", "tool": "list_photo", "arguments": {"name": "sea"}},
        {"namespace": "photos", "tool": "list_photo", "params": {"name": "sea"}},
        {"tool": "photos.list_photo", "params": {"name": "sea"}},
        {"tool": "list_photo", "params": {"name": "sea"}},
        {"name": "list_photo", "arguments": {"name": "sea"}},
        {"agent": "photos", "name": "list_photo", "arguments": {"name": "sea"}},
    ],
)
async def test_other_shapes_of_a_call_are_understood(catalog: Catalog, call: dict[str, Any]) -> None:
    result = (await use(catalog, call))["data"]["results"][0]
    assert (result["agent"], result["tool"], result["data"]["name"]) == ("photos", "list_photo", "sea")


@pytest.mark.parametrize("form", ["tool", "name"])
async def test_a_wire_name_of_a_toolset_is_understood(form: str) -> None:
    catalog = Catalog()
    catalog.add_source(FakeSource(name="git", listed=[foreign("git", "log")]))
    catalog.profile(Profile(name="all", exposure="search"))
    for call in ({form: "git__log"}, {"agent": "git", form: "git__log"}, {"agent": "git", form: "log"}):
        result = (await use(catalog, call))["data"]["results"][0]
        assert (result["agent"], result["tool"], result["success"]) == ("git", "log", True)


@pytest.mark.parametrize("arguments", [{}, {"calls": []}, {"calls": {}}, {"calls": "x"}])
async def test_without_calls_the_form_is_shown(catalog: Catalog, arguments: dict[str, Any]) -> None:
    text = 'calls array is required. Structure: calls: [{ agent: "…", tool: "…", params: {…} }]'
    assert await say(catalog, "useTools", **arguments) == {"success": False, "error": text}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("list_photo", "call 0 is not an object."),
        ({"agent": "photos"}, "call 0 names no tool."),
        ({"agent": "\ud800"}, "call 0 names no tool."),
        ({**OK, "agent": "\ud800"}, 'Agent "?" not found'),
        ({**OK, "tool": "\ud800" * 1_000}, f'Tool "{"?" * 199}'),
        ({**OK, "\ud800": 1}, 'call 0 has the unknown key "?"'),
        ({**OK, "tool": "LIST_PHOTO"}, 'Tool "LIST_PHOTO" not found in agent "photos" (did you mean "list_photo"?)'),
        ({"tool": 5}, "call 0 names no tool."),
        ({"agent": "photos", "tool": "list_photo", "path": "/x"}, 'call 0 has the unknown key "path"'),
        ({**OK, "arguments": {}}, "call 0 has its parameters twice."),
        (BAD, "Invalid arguments for 'photos.list_photo': $.name: 'name' is required."),
        (
            {**OK, "params": '{"name": "sea"}'},
            "The arguments of 'photos.list_photo' must be an object. Give {\"name\": …} itself, not JSON text.",
        ),
        (
            {**OK, "params": [{"name": "sea"}]},
            "The arguments of 'photos.list_photo' must be an object. Give {\"name\": …} itself, not a list.",
        ),
        ({**OK, "agent": ["photos"]}, "call 0 has an agent that is not a text."),
        ({**OK, "continueOnFailure": "yes"}, "call 0 has a continueOnFailure that is neither true nor false."),
        ({"tool": "USETOOLS"}, "USETOOLS cannot be called through useTools"),
        (
            {**OK, "tool": "lst_photo"},
            'Tool "lst_photo" not found in agent "photos" (did you mean "list_photo"?). Call getTools',
        ),
        ({**OK, "agent": "photo"}, 'Agent "photo" not found (did you mean "photos"?). Call getTools'),
        ({"tool": "photos__lst"}, 'Tool "photos__lst" not found'),
        ({"tool": "Share_Photo"}, 'Tool "Share_Photo" not found (did you mean "share_photo"?)'),
        ({"tool": "useTools", "params": {"calls": [OK]}}, "useTools cannot be called through useTools"),
        ({"agent": "pegboard__meta", "tool": "useTools", "params": {"calls": [OK]}}, "useTools cannot be called"),
    ],
)
async def test_a_call_that_cannot_be_made_says_why_and_the_others_may_go_on(
    catalog: Catalog, call: Any, said: str
) -> None:
    answer = await use(catalog, call, OK, strategy="parallel")
    first, second = answer["data"]["results"]
    assert first["success"] is False
    assert first["error"]["message"].startswith(said)
    assert second["success"] is True
    assert (answer["success"], answer["error"]) == (False, "1 of 2 failed")


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (BAD, "invalid_arguments"),
        ({**OK, "params": '{"name": "sea"}'}, "invalid_arguments"),
        ({**OK, "params": [OK["params"]]}, "invalid_arguments"),
        ({**OK, "params": {"params": OK["params"]}}, "invalid_arguments"),
        ({**OK, "arguments": {}}, "invalid_arguments"),
        ({**OK, "agent": ["photos"]}, "invalid_arguments"),
        ({**OK, "continueOnFailure": "yes"}, "invalid_arguments"),
        ({"agent": "photos", "tool": "list_photo", "name": "sea", "path": "/x"}, "invalid_arguments"),
        ({"name": "list_photo", "path": 1}, "invalid_arguments"),
        ({"agent": "Photos", "tool": "List_Photo", "params": {"name": "sea"}}, "not_found"),
        ({**OK, "agent": "pictures"}, "not_found"),
        ({**OK, "tool": "lst_photo"}, "not_found"),
        ({"tool": "List_Photo", "params": {"name": "sea"}}, "not_found"),
        ({"tool": "photos__lst_photo", "params": {"name": "sea"}}, "not_found"),
    ],
)
async def test_the_corrected_call_is_shown_for_every_misuse(catalog: Catalog, call: Any, kind: str) -> None:
    error = (await use(catalog, call))["data"]["results"][0]["error"]
    assert error["kind"] == kind
    correct = 'Correct: { "agent": "photos", "tool": "list_photo", "params": { "name": … } }'
    assert error.get("correct", error["message"]).endswith(correct)


async def test_what_stands_beside_the_calls_is_not_lost_in_silence(catalog: Catalog) -> None:
    call = {"agent": "photos", "tool": "list_photo"}
    answer = await say(catalog, "useTools", calls=[call], params={"name": "sea"})
    assert answer["success"] is False
    assert answer["error"] == (
        '"params" is next to `calls`; parameters belong into the call. '
        'Structure: calls: [{ agent: "…", tool: "…", params: {…} }]'
    )


async def test_serial_stops_at_the_first_failure_and_skips_the_rest(catalog: Catalog) -> None:
    results = (await use(catalog, OK, BAD, OK))["data"]["results"]
    assert [(item["success"], "skipped" in item) for item in results] == [(True, False), (False, False), (False, True)]
    assert set(results[2]) == {"index", "agent", "tool", "call_id", "success", "skipped"}
    answer = await use(catalog, OK, {**BAD, "continueOnFailure": True}, OK)
    assert [item["success"] for item in answer["data"]["results"]] == [True, False, True]
    assert answer["error"] == "1 of 3 failed"


class Crowd:
    """A tool that notes how many of its calls run at once; each waits until it is let go."""

    def __init__(self) -> None:
        self.now = self.most = self.begun = 0
        self.order: list[int] = []
        self.go = asyncio.Event()

    async def run(self, ctx: CallContext, args: dict[str, Any]) -> int:
        self.now, self.begun = self.now + 1, self.begun + 1
        self.most = max(self.most, self.now)
        self.order.append(args["n"])
        if self.begun >= args["wait_for"]:
            self.go.set()
        await self.go.wait()
        await asyncio.sleep(0)
        self.now -= 1
        return args["n"]

    def catalog(self, **hints: Any) -> Catalog:
        catalog = Catalog()
        schema = {"type": "object", "properties": {"n": {"type": "integer"}, "wait_for": {"type": "integer"}}}
        catalog.register(ToolSpec(name="join", input_schema=schema, annotations=Annotations(**hints)), self.run)
        catalog.profile(Profile(name="all", exposure="search"))
        return catalog


@pytest.mark.parametrize("hint", ["read_only", "idempotent"])
async def test_parallel_runs_eight_at_once_and_keeps_the_order(hint: str) -> None:
    crowd = Crowd()
    calls = [{"agent": "main", "tool": "join", "params": {"n": n, "wait_for": 8}} for n in range(20)]
    answer = await use(crowd.catalog(**{hint: True}), *calls, strategy="parallel")
    assert crowd.most == 8
    assert [item["data"] for item in answer["data"]["results"]] == list(range(20))
    assert [item["index"] for item in answer["data"]["results"]] == list(range(20))


async def test_parallel_runs_what_may_change_things_one_after_the_other() -> None:
    crowd = Crowd()
    calls = [{"agent": "main", "tool": "join", "params": {"n": n, "wait_for": 1}} for n in range(6)]
    await use(crowd.catalog(), *calls, strategy="parallel")
    assert (crowd.most, crowd.order) == (1, list(range(6)))


async def test_each_call_pays_its_own_limit() -> None:
    catalog = Catalog()
    limit = RateLimit(max_calls=2, window_s=60)
    catalog.register(ToolSpec(name="ring", rate_limit=limit), give_back)
    catalog.profile(Profile(name="all", exposure="search"))
    call = {"agent": "main", "tool": "ring", "continueOnFailure": True}
    results = (await use(catalog, call, call, call))["data"]["results"]
    assert [item["success"] for item in results] == [True, True, False]
    assert results[2]["error"]["kind"] == "rate_limited"
    assert 0 < results[2]["error"]["retry_after_s"] <= 60


async def test_each_call_asks_for_its_own_consent() -> None:
    catalog = Catalog()
    asked: list[Any] = []

    def approve(request: Any) -> bool:
        asked.append(request.arguments)
        return request.arguments["n"] == 1

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    catalog.register(ToolSpec(name="wipe", consent="always", input_schema=schema), give_back)
    catalog.profile(Profile(name="all", exposure="search"))
    calls = [{"agent": "main", "tool": "wipe", "params": {"n": n}, "continueOnFailure": True} for n in (1, 2)]
    results = (await use(catalog, *calls, ctx=ToolContext(approve=approve)))["data"]["results"]
    assert asked == [{"n": 1}, {"n": 2}]
    assert results[0]["data"] == {"tool": "wipe", "n": 1}
    assert results[1]["error"]["kind"] == "consent_declined"


async def test_a_batch_has_a_limit(catalog: Catalog) -> None:
    answer = await use(catalog, *[OK] * 51)
    assert answer == {
        "success": False,
        "error": "useTools runs at most 50 calls in a batch; this one has 51. Split it.",
    }
    small = Catalog(bounds=Bounds(use_tools_calls=2))
    small.profile(Profile(name="all", exposure="search"))
    assert (await use(small, OK, OK, OK))["success"] is False


async def test_a_strategy_that_there_is_not_is_refused(catalog: Catalog) -> None:
    answer = await use(catalog, OK, strategy="fast")
    assert answer == {"success": False, "error": 'strategy "fast" is not one of serial, parallel.'}


class Listener:
    """Writes down the events of a request."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return self.events.append


async def test_the_events_of_a_batch_carry_its_id(catalog: Catalog) -> None:
    @catalog.tool(namespace="agents", read_only=True)
    async def ponder(ctx: CallContext) -> str:
        """Think in steps."""
        await ctx.progress(0.5, "half way")
        async with ctx.sub_agent("thinker"):
            return "done"

    listener = Listener()
    ctx = ToolContext(callbacks=listener)
    calls = ({"agent": "agents", "tool": "ponder"}, OK)
    answer = await use(catalog, *calls, ctx=ctx, strategy="parallel", context={"goal": "a goal", "mood": "good"})
    batch = next(event for event in listener.events if event.type == "on_batch_started")
    ids = [item["call_id"] for item in answer["data"]["results"]]
    about = {"batch_id": batch.call_id, "strategy": "parallel", "calls": 2}
    assert batch.payload == {**about, "context": {"goal": "a goal"}}
    inner = [event for event in listener.events if event.call_id in ids]
    assert {event.parent_call_id for event in inner} == {batch.call_id}
    assert {event.type for event in inner} == {
        "on_tool_call", "on_progress", "on_sub_agent_start", "on_sub_agent_end", "on_tool_result",
    }  # fmt: skip
    own = [event for event in listener.events if event.call_id == batch.call_id]
    assert [event.type for event in own if event.type != "on_progress"] == [
        "on_tool_call", "on_batch_started", "on_batch_completed", "on_tool_result",
    ]  # fmt: skip
    fractions = [event.payload["fraction"] for event in own if event.type == "on_progress"]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    done = next(event for event in own if event.type == "on_batch_completed")
    assert done.payload == {**about, "failed": 0}
    assert done.ok is True
    assert len({event.request_id for event in listener.events}) == 1


async def test_an_observer_that_throws_breaks_no_batch(catalog: Catalog) -> None:
    class Thrower:
        def __getattr__(self, name: str) -> Any:
            return lambda event: 1 / 0

    answer = await use(catalog, OK, OK, ctx=ToolContext(callbacks=Thrower()), strategy="parallel")
    assert answer["success"] is True


async def test_media_stand_beside_the_answer_and_are_named_in_it(catalog: Catalog) -> None:
    catalog.tool(name="draw", namespace="art")(lambda: ImageContent(b"png", "image/png"))
    result = await view_of(catalog).call("useTools", {"calls": [OK, {"agent": "art", "tool": "draw"}]})
    assert result.content[1:] == (ImageContent(b"png", "image/png"),)
    assert result.structured["data"]["results"][1]["media"] == ["block 1"]


async def test_a_result_that_does_not_fit_is_left_out_and_says_so() -> None:
    catalog = Catalog(bounds=Bounds(result_bytes=20_000))
    catalog.tool(name="long", namespace="art")(lambda: "x" * 9_000)
    catalog.profile(Profile(name="all", exposure="search"))
    results = (await use(catalog, *[{"agent": "art", "tool": "long"}] * 3))["data"]["results"]
    assert [item["success"] for item in results] == [True, True, True]
    assert [item.get("data") is not None for item in results] == [True, False, False]
    assert "too large together" in results[1]["note"]


async def test_what_a_tool_takes_from_the_intent_is_filled_in() -> None:
    catalog = Catalog()
    schema = {
        "type": "object",
        "properties": {
            "goal": {"type": "string", "x-call-intent": True},
            "whole": {"type": "object", "x-call-intent": "context"},
            "context": {"type": "string"},
        },
        "required": ["goal"],
    }
    catalog.register(ToolSpec(name="note", input_schema=schema), give_back)
    catalog.profile(Profile(name="all", exposure="search"))
    call = {"agent": "main", "tool": "note", "params": {"context": "mine"}}
    told = {"goal": "ship it", "memory": "none yet"}
    answer = await use(catalog, call, {**call, "params": {"goal": "my own"}}, context=told)
    assert [item["data"] for item in answer["data"]["results"]] == [
        {"tool": "note", "context": "mine", "goal": "ship it", "whole": {"memory": "none yet", "goal": "ship it"}},
        {"tool": "note", "goal": "my own", "whole": {"memory": "none yet", "goal": "ship it"}},
    ]


FULL = {"workspaceId": "default", "sessionId": "s", "memory": "so far", "goal": "a goal"}


@pytest.mark.parametrize(
    ("context", "missing"),
    [
        (None, "workspaceId, sessionId, memory, goal"),
        ("N/A", "workspaceId, sessionId, memory, goal"),
        ({**FULL, "memory": "N/A", "goal": "TBD"}, "memory, goal"),
        ({**FULL, "sessionId": " <none> "}, "sessionId"),
        ({"goal": 5}, "workspaceId, sessionId, memory, goal"),
    ],
)
async def test_a_profile_may_require_a_real_context(context: Any, missing: str) -> None:
    catalog = shop(things=("photo",), require_context=True)
    answer = await use(catalog, OK, context=context)
    assert answer["success"] is False
    assert answer["error"].startswith(f"context needs real values for: {missing}. Example: ")
    assert (await use(catalog, OK, context=FULL))["success"] is True
    shown = await say(catalog, "getTools", request=[{"agent": "photos", "tools": ["list_photo"]}])
    assert shown["data"]["workspaces"] == ["default"]


async def test_a_workspace_narrows_and_never_grants() -> None:
    catalog = shop(things=("photo",))
    ctx = ToolContext(space_id="s1")
    for known in ("default", "s1"):
        assert (await use(catalog, OK, ctx=ctx, context={"workspaceId": known}))["success"] is True
    answer = await use(catalog, OK, ctx=ctx, context={"workspaceId": "s2"})
    assert answer == {"success": False, "error": 'Workspace "s2" is not available. Available: default, s1.'}


async def test_handlers_find_the_intent_of_their_call() -> None:
    catalog = Catalog()
    seen: list[Any] = []

    @catalog.tool
    async def look(ctx: CallContext) -> str:
        """Look."""
        seen.append((ctx.services["call_intent"].goal, ctx.user_id, ctx.services["db"]))
        return "ok"

    catalog.profile(Profile(name="all", exposure="search"))
    ctx = ToolContext(user_id="ann", services={"db": 7})
    await use(catalog, {"tool": "look"}, ctx=ctx, context={"goal": "see"})
    assert seen == [("see", "ann", 7)]


async def test_names_that_nobody_may_use_are_counted_and_recorded() -> None:
    catalog = Catalog(bounds=Bounds(invalid_calls_per_minute=3))
    catalog.tool(name="hidden", internal_only=True)(lambda: "x")
    catalog.profile(Profile(name="all", exposure="search"))
    listener = Listener()
    catalog.observe(listener)
    guess = {"tool": "hidden", "continueOnFailure": True}
    results = (await use(catalog, *[guess] * 5))["data"]["results"]
    assert [item["error"]["kind"] for item in results] == ["not_found"] * 3 + ["rate_limited"] * 2
    kinds = [event.payload["kind"] for event in listener.events if event.type == "on_tool_result"]
    assert kinds == ["not_found"] * 3 + ["rate_limited"] * 2 + ["ok"]


async def test_a_batch_that_is_cancelled_cancels_its_calls() -> None:
    catalog = Catalog()
    began, ended = asyncio.Event(), asyncio.Event()

    @catalog.tool(read_only=True)
    async def wait() -> str:
        """Wait."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    catalog.profile(Profile(name="all", exposure="search"))
    listener = Listener()
    running = asyncio.create_task(
        view_of(catalog).call("useTools", {"calls": [{"tool": "wait"}] * 2, "strategy": "parallel"}, callbacks=listener)
    )
    await began.wait()
    batch = next(event.call_id for event in listener.events if event.type == "on_batch_started")
    assert catalog.cancel(batch)
    result = await running
    assert result.error is not None
    assert result.error.kind == "cancelled"
    assert ended.is_set()
    assert catalog.executor.in_flight == {}
