"""Two tenants: whatever both do at once, neither gets a byte of the other's, and every cache is known to be separated.

Ann's data contain one canary, Bob's another. Both call everything there is, in any order and at the same time, with
each other's cursors, ids and names, and every byte of every answer is searched for the other's canary.
"""

from __future__ import annotations

import ast
import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pegboard import CallContext, ToolContext, http_app
from pegboard.auth.keys import KeyStore
from pegboard.config import load_catalog
from tests.agents.team import playing
from tests.server.asgi import send_raw
from tests.server.doors import JSON_HEADERS, META, VERSION
from tests.sizes import examples

SRC = Path(__file__).parents[2] / "src" / "pegboard"
CANARIES = {"ann": "alphacanaryofann", "bob": "betacanaryofbob"}
OTHER = {"ann": "bob", "bob": "ann"}
EARLIER = "2025-11-25"

CONFIG = """\
name: shared
files: [clerk.yaml]
models: {default: {provider: openai_compatible, name: clerk, base_url: "http://127.0.0.1:9/v1", api_key: k}}
workspace: {store: "sqlite:./documents.db"}
consents: {store: "sqlite:./consents.db"}
tasks: {engine: inline}
discovery: {learn: {file: learned.db}}
tools: [{name: ask_clerk, type: agent, description: Ask the clerk., agent: clerk}]
profiles:
  all: {}
  short: {exposure: search}
  static: {deny: [mine]}
identity:
  api_keys: {store: "sqlite:./keys.db"}
  map:
    - {when: {key: ann}, user: ann, space: ann, profiles: [all, short, static]}
    - {when: {key: bob}, user: bob, space: bob, profiles: [all, short, static]}
"""
CLERK = """\
apiVersion: pegboard/v1
kind: Agent
metadata: {name: clerk}
spec: {prompts: {system: You help.}, memory: {conversation: true, max_turns: 5}}
"""


@dataclass
class World:
    """One server, the key of each tenant, and the handles that each was given."""

    app: Any
    keys: dict[str, str]
    handles: dict[str, dict[str, list[str]]] = field(
        default_factory=lambda: {user: {"task": [], "cursor": [], "session": [], "consent": []} for user in CANARIES}
    )

    async def http(self, user: str, method: str, target: str, body: Any = None, **heads: str) -> tuple[int, bytes]:
        path, _, query = target.partition("?")
        said = {"host": "127.0.0.1:8420", "authorization": f"Bearer {self.keys[user]}", **JSON_HEADERS, **heads}
        raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in said.items()]
        sent = b"" if body is None else json.dumps(body).encode()
        told: dict[str, str] = {}
        status, _, answer = await send_raw(
            self.app, sent, raw, path=path, method=method, query=query.encode(), told=told
        )
        everything = json.dumps(told).encode() + answer
        others = CANARIES[OTHER[user]].encode()
        if others in sent:
            # A search repeats, in quotes, a word of the question that no passage has.
            everything = everything.replace(b"No passage has 'alphacanaryofann', 'betacanaryofbob'", b"")
            everything = everything.replace(b"No passage has '%b'" % others, b"")
        assert others not in everything, (user, method, target, body, everything[-2000:])
        if "mcp-session-id" in told:
            self.handles[user]["session"].append(told["mcp-session-id"])
        return status, answer

    async def mcp(self, user: str, method: str, params: dict[str, Any], *, profile: str = "all") -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
        heads = {"mcp_protocol_version": VERSION, "mcp_method": method}
        if target := params.get("name", params.get("uri", params.get("taskId"))):
            heads["mcp_name"] = target
        _, answer = await self.http(user, "POST", f"/mcp/{profile}", body, **heads)
        return json.loads(answer.rpartition(b"data: ")[2]) if answer else {}

    async def call(self, user: str, name: str, profile: str = "all", **arguments: Any) -> Any:
        answer = await self.mcp(user, "tools/call", {"name": name, "arguments": arguments}, profile=profile)
        if consent := answer.get("result", {}).get("_meta", {}).get("pegboard/error", {}).get("details", {}):
            self.handles[user]["consent"] += [consent["consent_id"]] if "consent_id" in consent else []
        return answer

    def handle(self, user: str, kind: str) -> str:
        """Return the newest handle of this user, or one that nobody has."""
        return (self.handles[user][kind] or ["none"])[-1]


Op = Callable[[World, str], Any]
OPS: dict[str, Op] = {}


def op(run: Op) -> Op:
    OPS[run.__name__] = run
    return run


@op
async def lists_tools(world: World, user: str) -> None:
    answer = await world.mcp(user, "tools/list", {})
    listed = json.dumps(answer)
    assert CANARIES[user] in listed, "its own built tool is described"
    assert f"only_{user}" in listed
    assert f"only_{OTHER[user]}" not in listed


@op
async def lists_tools_that_no_caller_has_built(world: World, user: str) -> None:
    # Only such lists are kept.
    listed = json.dumps(await world.mcp(user, "tools/list", {}, profile="static"))
    assert f"only_{user}" in listed
    for path in ("/v1/tools?profile=static", "/v1/search?profile=static&q=holds", "/openapi.json?profile=static"):
        await world.http(user, "GET", path)


@op
async def pages_over_http(world: World, user: str) -> None:
    _, page = await world.http(user, "GET", "/v1/tools?profile=all&limit=2")
    if cursor := json.loads(page).get("nextCursor"):
        world.handles[user]["cursor"].append(cursor)
    for of in (user, OTHER[user]):
        await world.http(user, "GET", f"/v1/tools?profile=all&limit=2&cursor={quote(world.handle(of, 'cursor'))}")


@op
async def reads_own_note(world: World, user: str) -> None:
    assert CANARIES[user] in json.dumps(await world.call(user, "note"))


@op
async def calls_its_built_tool(world: World, user: str) -> None:
    assert CANARIES[user] in json.dumps(await world.call(user, "mine"))


@op
async def calls_the_others_tool(world: World, user: str) -> None:
    assert "error" in await world.call(user, f"only_{OTHER[user]}")


@op
async def asks_why(world: World, user: str) -> None:
    for name in ("mine", f"only_{user}", f"only_{OTHER[user]}", "nothing_of_this_name"):
        await world.http(user, "GET", f"/v1/tools/{name}/why?profile=all")
        await world.http(user, "GET", f"/v1/tools/{name}?profile=all")


@op
async def searches_tools(world: World, user: str) -> None:
    for words in (CANARIES[user], CANARIES[OTHER[user]][:9], "read a note"):
        await world.http(user, "GET", f"/v1/search?profile=all&q={quote(words)}")
    await world.call(user, "searchTools", "short", query="a note of mine")
    await world.call(user, "useTools", "short", calls=[{"name": "note", "arguments": {}}])


@op
async def searches_documents(world: World, user: str) -> None:
    assert CANARIES[user] in json.dumps(await world.call(user, "search_documents", query="quarterly plan"))
    for name, arguments in (
        ("list_sources", {}), ("search_documents", {"query": "alphacanaryofann betacanaryofbob"}),
        ("grep_documents", {"pattern": "canary"}), ("find_documents", {"pattern": "*"}),
    ):  # fmt: skip
        await world.call(user, name, **arguments)


@op
async def runs_a_task(world: World, user: str) -> None:
    _, answer = await world.http(user, "POST", "/v1/tools/later/call?profile=all&as_task=true", {})
    if task := json.loads(answer).get("taskId"):
        world.handles[user]["task"].append(task)
    await world.http(user, "GET", "/v1/tasks?profile=all")


@op
async def reads_its_own_task(world: World, user: str) -> None:
    task = world.handle(user, "task")
    await world.http(user, "GET", f"/v1/tasks/{task}?profile=all")
    await world.mcp(user, "tasks/get", {"taskId": task})


@op
async def asks_for_the_others_task(world: World, user: str) -> None:
    task = world.handle(OTHER[user], "task")
    for method, path in (("GET", ""), ("POST", "/cancel"), ("POST", "/answer"), ("POST", "/resume")):
        status, _ = await world.http(user, method, f"/v1/tasks/{quote(task)}{path}?profile=all", {"answer": "x"})
        assert status in (400, 404, 405, 422), (method, path, status)
    for name in ("tasks/get", "tasks/cancel"):
        assert "error" in await world.mcp(user, name, {"taskId": task})


@op
async def needs_a_yes(world: World, user: str) -> None:
    await world.call(user, "pay", to=CANARIES[user])
    await world.http(user, "GET", "/v1/consents?profile=all")


@op
async def decides_for_the_other(world: World, user: str) -> None:
    consent = world.handle(OTHER[user], "consent")
    for method, path in (("GET", ""), ("POST", "/approve"), ("POST", "/deny"), ("POST", "/grant"), ("DELETE", "")):
        status, _ = await world.http(user, method, f"/v1/consents/{quote(consent)}{path}", {})
        assert status >= 400, (method, path, status)


@op
async def reads_resources(world: World, user: str) -> None:
    listed = await world.mcp(user, "resources/list", {})
    assert CANARIES[user] in json.dumps(await world.mcp(user, "resources/read", {"uri": "note://mine"}))
    for resource in listed.get("result", {}).get("resources", []):
        await world.mcp(user, "resources/read", {"uri": resource["uri"]})
    await world.mcp(user, "prompts/get", {"name": "greeting", "arguments": {"text": "hello"}})
    reference = {"ref": {"type": "ref/prompt", "name": "greeting"}, "argument": {"name": "text", "value": ""}}
    await world.mcp(user, "completion/complete", reference)


@op
async def talks_to_the_clerk(world: World, user: str) -> None:
    body = {"query": f"Remember {CANARIES[user]}.", "sessionId": "same"}
    status, answer = await world.http(user, "POST", "/v1/agents/clerk/run?profile=all", body)
    assert (status, CANARIES[user].encode() in answer) == (200, True), answer


@op
async def opens_a_session(world: World, user: str) -> None:
    params = {"protocolVersion": EARLIER, "capabilities": {}, "clientInfo": {"name": user, "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    await world.http(user, "POST", "/mcp/all", body, mcp_protocol_version=EARLIER)


@op
async def uses_a_session(world: World, user: str) -> None:
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "note", "arguments": {}}}
    for of in (user, OTHER[user]):
        session = world.handle(of, "session")
        status, _ = await world.http(
            user, "POST", "/mcp/all", call, mcp_protocol_version=EARLIER, mcp_session_id=session
        )
        assert of == user or status == 404


@op
async def fails_with_its_own_arguments(world: World, user: str) -> None:
    await world.call(user, "pay", to=7, because=CANARIES[user])
    for _ in range(6):
        await world.call(user, "breaks", text=CANARIES[user])


@op
async def looks_at_the_rest(world: World, user: str) -> None:
    for path in ("/", "/openapi.json", "/metrics", "/healthz", "/readyz", "/v1/grants", "/v1/nothing"):
        await world.http(user, "GET", path)


def declare(catalog: Any) -> None:
    @catalog.tool(read_only=True)
    async def note(ctx: ToolContext) -> str:
        """Read a note of mine."""
        await asyncio.sleep(0)
        return CANARIES[ctx.user_id or ""]

    @catalog.builder("mine")
    def build(ctx: ToolContext) -> Any:
        def mine() -> str:
            return CANARIES[ctx.user_id or ""]

        mine.__doc__ = f"Say {CANARIES.get(ctx.user_id or '', 'nothing')}."
        return mine

    for user, canary in CANARIES.items():
        catalog.predicate(name=f"is_{user}")(lambda ctx, user=user: ctx.user_id == user)
        catalog.tool(name=f"only_{user}", description=f"Holds {canary}.", available=f"is_{user}")(lambda: "yes")

    @catalog.tool(task="optional")
    async def later(ctx: CallContext) -> str:
        """Work later."""
        return await ctx.step("say", lambda: CANARIES[ctx.user_id or ""])

    @catalog.tool(consent="always")
    async def pay(to: str) -> str:
        """Pay."""
        return to

    @catalog.tool
    async def breaks(text: str) -> str:
        """Break."""
        raise ValueError(text)

    @catalog.resource("note://mine")
    def own(ctx: ToolContext) -> str:
        """My note."""
        return CANARIES[ctx.user_id or ""]

    @catalog.prompt
    def greeting(ctx: ToolContext, text: str) -> str:
        """Greet."""
        return f"{text} {CANARIES[ctx.user_id or '']}"

    @catalog.completion("text", prompt="greeting")
    def texts(ctx: ToolContext, value: str) -> list[str]:
        return [CANARIES[ctx.user_id or ""]]


def everything_heard(messages: Any, _info: Any) -> str:
    """Play a model that repeats all that it was ever told."""
    return " ".join(str(part.content) for message in messages for part in message.parts)


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    folder = tmp_path_factory.mktemp("tenants")
    (folder / "pegboard.yaml").write_text(CONFIG)
    (folder / "clerk.yaml").write_text(CLERK)
    keys = {user: KeyStore(folder / "keys.db").add(user)[0] for user in CANARIES}
    catalog, config = load_catalog(folder / "pegboard.yaml", env={})
    declare(catalog)
    catalog.runtime.agents.make_model = playing({"clerk": everything_heard})
    app = http_app(catalog, config=config)
    async with app.router.lifespan_context(app):
        made = World(app, keys)
        for user, canary in CANARIES.items():
            text = f"The quarterly plan of {user} is {canary}."
            heads = [(b"host", b"127.0.0.1:8420"), (b"authorization", f"Bearer {keys[user]}".encode())]
            status, _, answer = await send_raw(
                app, text.encode(), heads, path="/v1/documents", query=b"path=plan.md&profile=all"
            )
            assert status in (200, 201), answer
        yield made


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.CRITICAL, logger="pegboard"):
        yield


STEPS = st.lists(st.tuples(st.sampled_from(sorted(OPS)), st.sampled_from(sorted(OPS))), min_size=1, max_size=6)


@pytest.mark.parametrize("name", sorted(OPS))
async def test_each_operation_of_both_at_once_shows_neither_the_others_data(world: World, name: str) -> None:
    for _ in range(2):
        await asyncio.gather(OPS[name](world, "ann"), OPS[name](world, "bob"))


@settings(max_examples=examples(150, few=20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
async def test_operations_in_any_order_and_at_once_show_neither_the_others_data(world: World, steps: Any) -> None:
    for hers, his in steps:
        await asyncio.gather(OPS[hers](world, "ann"), OPS[his](world, "bob"))


# ---------------------------------------------------------------- what is kept between calls

# By what separates two callers. Whoever adds one says here what, and adds an operation above if none reaches it.
KEPT: dict[str, str] = {
    "the key holds who calls: credential, user, space, session, or the owner of a task": """
        agents/conversations.py:_sessions auth/tokens.py:_good auth/verifier.py:_grants
        connections/token_cache.py:_entries connections/exchanged_credentials.py:_held
        consent/memory_answers.py:_agreed consent/memory_answers.py:_declined consent/memory_answers.py:_used
        core/call/repeats.py:rows
        discovery/learning/search_use.py:_at_hand discovery/learning/search_use.py:_searches
        discovery/meta_tools/loop_guard.py:_asked discovery/meta_tools/loop_guard.py:asked limits/memory.py:window
        server/authenticator.py:_admitted server/authenticator.py:_let_in server/authenticator.py:_principals
        server/mcp/sessions/session_ids.py:_ended server/mcp/sessions/shared_sessions.py:_wishes
        server/principal.py:_callers server/sealing.py:_used sources/mcp/http_transport.py:_remembered
        sources/mcp/person_sessions.py:_ending sources/mcp/person_sessions.py:_open
        sources/mcp/personal_source.py:_lists sources/mcp/personal_resources.py:_digests
        tasks/places.py:_of_owners""",
    "the key is the very list of tools, the selection or the policy, and the value is made of that alone": """
        catalog.py:cache catalog.py:checked catalog.py:values core/selections.py:_bits core/selections.py:_by_chosen
        core/selections.py:_left core/selections.py:_steps core/selections.py:_whole core/snapshot.py:_conditions
        core/snapshot.py:_verdicts core/snapshot.py:name_orders core/snapshot.py:near_names core/view.py:kept
        discovery/exposure.py:lists discovery/finder.py:visible discovery/meaning.py:_matrices
        providers/exporter.py:cache server/mcp/handlers/lists.py:known""",
    "the key is the set of secrets in use, and the value finds those": "core/call/record.py:_redactors",
    "the value is a function of its key alone, with nothing of the caller": """
        auth/tokens.py:_public_keys core/inventory.py:by_group core/names.py:_glob core/schema.py:_compiled
        core/schema_references.py:_plain core/sdk_blocks.py:_names_of_class
        discovery/example_requests.py:_bullet discovery/meaning.py:_requests
        discovery/search/binary_codes.py:_signs discovery/search/terms.py:_stem discovery/search/terms.py:_stop_words
        discovery/search/terms.py:_word_terms egress/process.py:_setpriv egress/transport.py:shared_ssl_context
        models/embedding/static_embedder.py:_words
        server/host_guard.py:_good server/http_connection.py:_status_line server/mcp/headers.py:_known
        server/mcp/ready_bytes.py:_accepted sources/foreign_text.py:_is_hidden
        storage/postgres_server.py:_with_percents workspace/analyzer.py:_silent_terms
        language/scripts.py:stemmer workspace/analyzer.py:_terms_of_run
        workspace/postgres/postgres_database.py:_numbered""",
    "it lives for one request, call, stream or connection, or within one function": """
        agents/runtime.py:items core/agent_graph.py:waiting core/entry_change.py:by_key core/event_queue.py:_events
        egress/process_pipes.py:_lines model/attempts.py:running_step server/event_hub.py:_frames
        server/mcp/sessions/shared_sessions.py:_following server/mcp/sessions/shared_sessions.py:queue
        sources/mcp/connection.py:_path sources/mcp/elicitation.py:_calling sources/mcp/http_transport.py:_connected_to
        sources/mcp/http_transport.py:_resumption sources/mcp/stdio_transport.py:progressed
        sources/openapi/document_parts.py:waiting sources/openapi/schema_translation.py:waiting
        telemetry/served_request.py:HTTP_CARRIER
        telemetry/served_request.py:MCP_CALL telemetry/served_request.py:REQUEST_ID
        workspace/ingest.py:working catalog.py:_while_read planning/recorded_limits.py:times
        audit/recent_calls.py:by_key audit/usage.py:parts audit/usage.py:whole
        server/console/highlights.py:is_asked""",
    "an adapter makes it for one view, which is one caller's": """
        adapters/langchain.py:_call_id adapters/langchain.py:_interrupted adapters/langchain.py:_results
        adapters/openai_agents.py:_agreed_to adapters/openai_agents.py:_asked""",
    "it counts the calls of all callers, and only operators see it": """
        audit/recent_calls.py:_windows telemetry/otel_metrics.py:_instruments""",
    "the process's own, with no data of callers": """
        agents/runtime.py:_loops audit/audit_writer.py:queue catalog.py:_catalogs
        core/after_fork.py:_inheritors models/language_models.py:_loops workspace/parsing/foreign.py:_function
        server/bus.py:_waiting sources/mcp/backoff.py:_failures limits/redis_link.py:_sent""",
}
KEEPING = frozenset({
    "BoundedCache", "ContextVar", "OrderedDict", "Queue", "WeakKeyDictionary", "WeakSet", "WeakValueDictionary",
    "cache", "defaultdict", "deque", "lru_cache",
})  # fmt: skip


def last_name(node: ast.expr) -> str | None:
    """Return the last part of a name, such as `BoundedCache` of `bounded_cache.BoundedCache[str, int]`."""
    match node:
        case ast.Subscript(value=inner) | ast.Call(func=inner):
            return last_name(inner)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return None


def kept_in(path: Path) -> Iterator[str]:
    """Yield the name of each variable, attribute and function of a module that keeps something between calls."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=name, decorator_list=[*decorators]):
                if KEEPING & {last_name(one) for one in decorators}:
                    yield name
            case ast.Assign(targets=[*targets], value=ast.expr() as value):
                made = {last_name(call.func) for call in ast.walk(value) if isinstance(call, ast.Call)}
                pairs = (target.elts if isinstance(target, ast.Tuple) else [target] for target in targets)
                if KEEPING & made:
                    yield from (last_name(one) or "?" for pair in pairs for one in pair)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                made = {last_name(call.func) for call in ast.walk(value) if isinstance(call, ast.Call)}
                if KEEPING & made:
                    yield last_name(target) or "?"
            case _:
                pass


def test_whatever_is_kept_between_calls_is_known_with_what_separates_two_callers() -> None:
    found = {f"{path.relative_to(SRC).as_posix()}:{name}" for path in SRC.rglob("*.py") for name in kept_in(path)}
    known = {name for names in KEPT.values() for name in names.split()}
    assert (sorted(found - known), sorted(known - found)) == ([], []), "name it in KEPT, with what separates callers"
