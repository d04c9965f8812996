"""Claude Agent SDK: a View as its server, and the guard, over the SDK's own Transport with a scripted command."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, HookMatcher, Transport

from pegboard import Catalog, Profile, RateLimit, ToolContext, Verdict
from pegboard.adapters.claude_agent_sdk import allowed_tools, guarded, mcp_server
from pegboard.model.error import DefinitionError
from pegboard.model.policy import Policy
from pegboard.model.record import replace
from pegboard.testing import scripted_approver
from tests.adapters.shop import RecordingView, open_shop
from tests.core.parts import FakeSource, foreign
from tests.timing import is_within

PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


class Command(Transport):
    """Behaves as the SDK's command does: asks the hooks in their order, and runs what none denies.

    A hook that fails is not a decision unless its matcher says `block`; of two `updatedInput` the later one counts.
    """

    def __init__(self) -> None:
        self.ran: list[tuple[str, Any]] = []
        self._to_sdk: asyncio.Queue[Any] = asyncio.Queue()
        self._answers: dict[str, asyncio.Future[Any]] = {}
        self._hooks: list[Any] = []
        self._numbers = count(1)

    async def connect(self) -> None: ...

    async def close(self) -> None:
        self._to_sdk.put_nowait(None)

    async def end_input(self) -> None: ...

    def is_ready(self) -> bool:
        return True

    async def write(self, data: str) -> None:
        for line in data.splitlines():
            message = json.loads(line)
            if message["type"] == "control_request":
                if message["request"]["subtype"] == "initialize":
                    self._hooks = (message["request"]["hooks"] or {}).get("PreToolUse", [])
                response = {"subtype": "success", "request_id": message["request_id"], "response": INITIALIZED}
                self._to_sdk.put_nowait({"type": "control_response", "response": response})
            elif message["type"] == "control_response":
                self._answers.pop(message["response"]["request_id"]).set_result(message["response"])

    async def read_messages(self) -> AsyncIterator[Any]:
        while (message := await self._to_sdk.get()) is not None:
            yield message

    async def ask(self, **request: Any) -> Any:
        """Send the SDK a request, and return what it answers."""
        request_id = f"r{next(self._numbers)}"
        answer = self._answers[request_id] = asyncio.get_running_loop().create_future()
        self._to_sdk.put_nowait({"type": "control_request", "request_id": request_id, "request": request})
        return await answer

    async def use(self, name: str, given: Any = None) -> str:
        """Do what the command does when the model calls a tool; return what the model is told."""
        given = {} if given is None else given
        updated = given
        for matcher in self._hooks:
            if matcher["matcher"] is not None and re.fullmatch(matcher["matcher"], name) is None:
                continue
            for callback in matcher["hookCallbackIds"]:
                event = {"hook_event_name": "PreToolUse", "tool_name": name, "tool_input": given, "tool_use_id": "t"}
                answer = await self.ask(subtype="hook_callback", callback_id=callback, input=event, tool_use_id="t")
                output = answer.get("response") or {}
                if answer["subtype"] == "error" and matcher.get("onFailure") == "block":
                    return "blocked"
                said = output.get("hookSpecificOutput", {})
                assert said.get("permissionDecision") in (None, "deny"), "a hook never allows"
                if said.get("permissionDecision") == "deny":
                    return said["permissionDecisionReason"]
                updated = said.get("updatedInput", updated)
        self.ran.append((name, updated))
        return "ran"

    async def mcp(self, server: str, method: str, **params: Any) -> Any:
        message = {"jsonrpc": "2.0", "id": next(self._numbers), "method": method, "params": params}
        answer = await self.ask(subtype="mcp_message", server_name=server, message=message)
        return answer["response"]["mcp_response"]["result"]


INITIALIZED = {"hook_on_failure_supported": True, "commands": []}


@asynccontextmanager
async def session(options: ClaudeAgentOptions) -> AsyncIterator[Command]:
    command = Command()
    async with ClaudeSDKClient(options, transport=command):
        yield command


def files(**profile: Any) -> tuple[Catalog, FakeSource]:
    """Return a catalog that mirrors a server `files`, and the SDK's own Bash and Read."""
    catalog = Catalog("desk")
    source = FakeSource(name="files", listed=[
        foreign("files", "read", input_schema=PATH),
        foreign("files", "wipe", input_schema=PATH, groups=("danger",)),
        foreign("files", "send", input_schema=PATH, rate_limit=RateLimit(max_calls=1, window_s=60.0)),
        foreign("files", "sign", input_schema=PATH, consent="always"),
    ], declared=frozenset({"core", "danger"}))  # fmt: skip
    catalog.mirror(source=source)
    catalog.mirror("Read")
    catalog.mirror("Bash", groups="danger")
    catalog.mirror("Write", available=lambda ctx: ctx.user_id == "bob")
    catalog.profile(Profile(name="safe", include=("core",)))
    catalog.profile(Profile(name="all", include=("core", "danger"), policy=Policy(deny=("files.wipe",))))
    return catalog, source


def options(catalog: Catalog, profile: str = "safe", user: str = "ann", **said: Any) -> ClaudeAgentOptions:
    view = catalog.view(ToolContext(user_id=user, approve=said.pop("approve", None)), profile=profile)
    plain = ClaudeAgentOptions(mcp_servers={"files": {"command": "files"}}, setting_sources=[], **said)
    return guarded(plain, view)


async def test_what_the_view_holds_runs_with_the_arguments_that_were_judged() -> None:
    catalog, _ = files()
    kinds = list[tuple[str, str]]()
    catalog.observe(Ends(kinds))
    async with session(options(catalog)) as command:
        assert await command.use("mcp__files__read", {"path": "a"}) == "ran"
        assert "$.path" in await command.use("mcp__files__read", {"path": 1})
        assert "not an object" in (await command.use("mcp__files__read", [1])).replace("must be", "not")
    assert command.ran == [("mcp__files__read", {"path": "a"})]
    assert [kind for _, kind in kinds] == ["ok", "invalid_arguments", "invalid_arguments"]


class Ends:
    def __init__(self, kinds: list[tuple[str, str]]) -> None:
        self._kinds = kinds

    def on_tool_result(self, event: Any) -> None:
        self._kinds.append((event.tool, event.payload["kind"]))


SPELLINGS = [
    "mcp__files__wipe", "mcp__files__WIPE", "mcp__Files__wipe", "MCP__files__wipe", "mcp__files____wipe",
    "mcp__files__wipe ", " mcp__files__wipe", "mcp__files", "mcp__", "mcp__files__", "mcp__files__wipe\n",
    "mcp__files.wipe", "mcp__files__files__wipe", "mcp__ﬁles__wipe", "mcp____files__wipe", "mcp__files__wi\u200bpe",
    "mcp__other__read", "mcp__other__wipe", "mcp__fil__es__read", "mcp__files__nothing", "Bash", "Write",
]  # fmt: skip


@pytest.mark.parametrize("profile", ["safe", "all"])
async def test_a_restricted_tool_an_unknown_one_and_an_unknown_server_run_by_no_spelling(profile: str) -> None:
    catalog, _ = files()
    if profile == "all":
        catalog.profile(Profile(name="all", include=("core", "danger"), policy=Policy(deny=("files.wipe", "Bash"))))
    async with session(options(catalog, profile)) as command:
        told = {name: await command.use(name, {"path": "/"}) for name in SPELLINGS}
    # A name that begins with a space is not a tool of any server: the command itself would not find one.
    assert [name for name, _ in command.ran if name.strip() == name] == []
    hidden, absent = told["mcp__files__wipe"], told["mcp__files__nothing"]
    assert hidden.replace("wipe", "NAME") == absent.replace("nothing", "NAME")


async def test_the_sdks_own_tools_are_governed_where_they_are_mirrored_and_left_alone_elsewhere() -> None:
    catalog, _ = files()
    async with session(options(catalog, user="ann")) as of_ann, session(options(catalog, "all", "bob")) as of_bob:
        for name in ("Read", "Bash", "Write", "Glob"):
            await asyncio.gather(of_ann.use(name, {"command": "ls", "odd": [1]}), of_bob.use(name, {"command": "ls"}))
    assert [name for name, _ in of_ann.ran] == ["Read", "Glob"]
    assert [name for name, _ in of_bob.ran] == ["Read", "Bash", "Write", "Glob"]


async def test_limits_are_charged_consent_is_asked_and_rewrites_of_hooks_are_what_runs() -> None:
    catalog, _ = files()
    told, kinds = list[str](), list[tuple[str, str]]()
    catalog.observe(Ends(kinds))
    catalog.before("files.read")(lambda call: Verdict.replace({"path": "/safe/a"}))
    approve = scripted_approver(True, False)
    async with session(options(catalog, approve=approve)) as command:
        for name in ("read", "send", "send", "sign", "sign"):
            told.append(await command.use(f"mcp__files__{name}", {"path": "a"}))
    assert command.ran == [
        ("mcp__files__read", {"path": "/safe/a"}),
        ("mcp__files__send", {"path": "a"}),
        ("mcp__files__sign", {"path": "a"}),
    ]
    assert [kind for _, kind in kinds] == ["ok", "ok", "rate_limited", "ok", "consent_declined"]
    assert "rate limit" in told[2]
    assert [request.tool for request in approve.requests] == ["files.sign"] * 2


async def test_another_hooks_rewrite_never_runs_unjudged() -> None:
    catalog, _ = files()

    async def rewrite(event: Any, tool_use_id: Any, context: Any) -> Any:
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": {"path": "/etc"}}}

    hooks: Any = {"PreToolUse": [HookMatcher(matcher="mcp__.*", hooks=[rewrite])]}
    given = options(catalog, hooks=hooks)
    async with session(given) as command:
        await command.use("mcp__files__read", {"path": "a"})
    assert command.ran == [("mcp__files__read", {"path": "a"})]
    assert given.hooks is not None
    given.hooks["PreToolUse"].append(HookMatcher(matcher="mcp__.*", hooks=[rewrite]))
    async with session(given) as command:
        assert "no longer the last" in await command.use("mcp__files__read", {"path": "a"})
    assert command.ran == []
    # Nor beside the guard in its own place, nor where the guard hears of some calls only.
    for hooks_beside, matcher in (([rewrite], None), ([], "mcp__files__.*")):
        given = options(catalog)
        assert given.hooks is not None
        own = given.hooks["PreToolUse"][-1]
        own.hooks.extend(hooks_beside)
        own.matcher = matcher
        async with session(given) as command:
            assert "no longer the last" in await command.use("mcp__files__read", {"path": "a"})
        assert command.ran == []


async def test_a_hook_that_answers_in_place_of_a_tool_that_runs_elsewhere_is_a_denial() -> None:
    catalog, _ = files()

    @catalog.around("files.read")
    async def answer(call: Any, run: Any) -> str:
        return "from the hook"

    async with session(options(catalog)) as command:
        assert "cannot be done here" in await command.use("mcp__files__read", {"path": "a"})
    assert command.ran == []


async def test_a_guard_that_would_not_be_the_last_is_not_installed() -> None:
    catalog, _ = files()
    view = catalog.view(ToolContext(user_id="ann"), profile="safe")
    isolated = ClaudeAgentOptions(setting_sources=[])
    for refused in (
        ClaudeAgentOptions(), ClaudeAgentOptions(setting_sources=["user"]), replace(isolated, settings="{}"),
        replace(isolated, plugins=[{"type": "local", "path": "p"}]), replace(isolated, mcp_servers="servers.json"),
        guarded(isolated, view),
    ):  # fmt: skip
        with pytest.raises(DefinitionError):
            guarded(refused, view)
    assert guarded(ClaudeAgentOptions(), view, trust_settings=True).hooks


async def test_whatever_fails_is_a_denial_in_time() -> None:
    catalog, _ = files()
    waiting = asyncio.Event()

    @catalog.before("files.read")
    async def hang(call: Any) -> None:
        await waiting.wait()

    @catalog.before("files.send")
    def fail(call: Any) -> None:
        raise RuntimeError("CANARY")

    view = catalog.view(ToolContext(user_id="ann"), profile="safe")
    quick = guarded(ClaudeAgentOptions(setting_sources=[]), view, timeout_s=0.1)
    async with session(quick) as command:
        assert "within 0.09 s" in await command.use("mcp__files__read", {"path": "a"})
        assert "CANARY" not in await command.use("mcp__files__send", {"path": "a"})
        for broken in ({}, {"tool_name": 3, "tool_input": {}}, {"tool_name": "mcp__files__read"}, None, "x"):
            callback = command._hooks[-1]["hookCallbackIds"][0]
            answer = await command.ask(subtype="hook_callback", callback_id=callback, input=broken, tool_use_id="t")
            assert answer["response"]["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert command.ran == []


async def test_a_server_that_lists_anew_and_one_of_an_own_source_are_judged_by_what_they_list_now() -> None:
    catalog, source = files()
    listed = [foreign("git", "log"), foreign("git", "push", groups=("danger",))]
    catalog.add_source(FakeSource(name="git", listed=listed, declared=frozenset({"core", "danger"})))
    async with session(options(catalog)) as command:
        source.relist([foreign("files", "peek", input_schema=PATH)])
        for name in ("files__read", "files__peek", "git__log", "git__push"):
            await command.use(f"mcp__{name}", {"path": "a"} if "files" in name else {})
    assert [name for name, _ in command.ran] == ["mcp__files__peek", "mcp__git__log"]


async def test_a_view_is_a_server_of_the_sdk_whose_calls_go_through_the_door_once() -> None:
    shop = open_shop()
    view = RecordingView(shop.view())
    plain = ClaudeAgentOptions(
        mcp_servers={"pegboard": mcp_server(view), "pegboard__x": {"command": "x"}},
        allowed_tools=allowed_tools(view),
        setting_sources=[],
    )
    assert "mcp__pegboard__price" in plain.allowed_tools
    assert "mcp__pegboard__raid" not in plain.allowed_tools
    async with session(guarded(plain, view)) as command:
        assert await command.use("mcp__pegboard__price", {"item": "tea"}) == "ran"
        assert "No tool named" in await command.use("mcp__pegboard__x__price", {"item": "tea"})
        assert shop.finished[1:] == []
        info = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        await command.mcp("pegboard", "initialize", **info)
        listed = (await command.mcp("pegboard", "tools/list"))["tools"]
        assert [tool["name"] for tool in listed] == view.names()
        called = await command.mcp("pegboard", "tools/call", name="price", arguments={"item": "tea"})
        wrong = await command.mcp("pegboard", "tools/call", name="price", arguments={"itm": "tea"})
        hidden = await command.mcp("pegboard", "tools/call", name="raid", arguments={"amount": 1})
    assert called["structuredContent"] == {"item": "tea", "total": 3}
    assert wrong["isError"] is True
    assert "$.itm" in wrong["content"][0]["text"]
    assert "No tool named 'raid'" in hidden["content"][0]["text"]
    assert shop.ran == [("price", ("tea", 1))]
    assert [name for name, _ in view.calls] == ["mcp__pegboard__x__price", "price", "price", "raid"]


async def test_each_call_that_the_guard_is_asked_about_reaches_the_view_once_and_as_it_was_made() -> None:
    catalog, _ = files()
    view = RecordingView(catalog.view(ToolContext(user_id="ann"), profile="safe"))
    plain = ClaudeAgentOptions(mcp_servers={"files": {"command": "files"}}, setting_sources=[])
    asked = [
        ("mcp__files__read", {"path": "a"}), ("mcp__files__read", {"path": 1}), ("mcp__files__wipe", {"path": "/"}),
        ("mcp__other__read", {"path": "a"}), ("Bash", {"command": "ls"}),
    ]  # fmt: skip
    async with session(guarded(plain, view)) as command:
        told = [await command.use(name, given) for name, given in [*asked, ("Glob", {})]]
    assert view.calls == asked
    assert [text == "ran" for text in told] == [True, False, False, False, False, True]


def test_the_names_of_two_hundred_tools_of_a_mirrored_server_cost_less_than_a_millisecond() -> None:
    catalog = Catalog("desk")
    catalog.mirror(
        source=FakeSource(name="files", listed=[foreign("files", f"tool_{n}", input_schema=PATH) for n in range(200)])
    )
    view = catalog.view(ToolContext(user_id="ann"))
    best_s = min(_cost_s(view) for _ in range(20))
    assert len(view.names("desk")) == 200
    assert is_within(best_s, 0.001, time.process_time), f"{best_s * 1e3:.2f} ms"


def _cost_s(view: Any) -> float:
    before = time.process_time()
    view.names("desk")
    return time.process_time() - before
