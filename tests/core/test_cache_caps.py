"""Caps of what is remembered: each cache holds no more than its bound says, whatever callers send."""

import gc
from collections import deque
from types import CodeType, FunctionType, ModuleType

import pytest

from pegboard import Policy, Profile, Secret, ToolContext, ToolSpec
from pegboard.core.call.record import REDACTORS_REMEMBERED
from pegboard.core.judge import Selection
from pegboard.core.selections import SELECTIONS_KEPT, SELECTIONS_REMEMBERED
from pegboard.discovery.exposure import EXPOSED_LISTS
from pegboard.discovery.finder import SEARCH_VISIBLE_SETS
from pegboard.discovery.meta_tools.loop_guard import LOOP_QUESTIONS, LOOP_SESSIONS, LoopGuard
from pegboard.model.host import NO_HOST
from pegboard.providers.exporter import PROVIDER_LISTS
from pegboard.server.host_guard import HOSTS_REMEMBERED, LOOPBACK_HOSTS, HostGuard
from pegboard.server.principal import CALLERS_REMEMBERED, HostContexts, Identity, Principal
from pegboard.server.sealing import REQUEST_STATE_S, USED_STATES, KeyCodec, Sealing
from tests.core.parts import echo, one_tool


def sizes(root: object, *, above: int) -> list[int]:
    """Return the sizes of whatever holds more than so many entries, of all that can be reached from an object.

    What belongs to modules and types is not looked at: it is shared, and not filled by callers.
    """
    seen, found, waiting = {id(root)}, list[int](), [root]
    while waiting:
        item = waiting.pop()
        if isinstance(item, FunctionType):
            inner = [cell.cell_contents for cell in item.__closure__ or ()]
        else:
            inner = gc.get_referents(item)
        if isinstance(item, dict | list | set | frozenset | deque) and len(item) > above:  # pyright: ignore[reportUnknownArgumentType] - of anything
            found.append(len(item))  # pyright: ignore[reportUnknownArgumentType] - as above
        for one in inner:
            if id(one) not in seen and not isinstance(one, ModuleType | type | CodeType):
                seen.add(id(one))
                waiting.append(one)
    return sorted(found)


async def test_redactors_of_many_sets_of_secrets() -> None:
    catalog = one_tool()
    for number in range(REDACTORS_REMEMBERED + 50):
        await catalog.view(ToolContext(secrets={"token": Secret(f"secret-{number}")})).call("echo", {})
    assert sizes(catalog, above=REDACTORS_REMEMBERED - 1) == [REDACTORS_REMEMBERED]


def test_selections_of_many_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SELECTIONS_KEPT == 20_000
    kept = 1_000  # twenty times as many callers take twenty times longer, and no other way
    monkeypatch.setattr("pegboard.core.selections.SELECTIONS_KEPT", kept)
    catalog = one_tool()
    catalog.register(ToolSpec(name="other"), echo)
    policies = [Policy(deny=("other", f"main.none_{number}")) for number in range(kept + 50)]
    for policy in policies[: SELECTIONS_REMEMBERED + 50]:
        assert catalog.view(ToolContext(policy=policy)).names() == ["echo"]
    for policy in policies:
        # What a view asks first; all the rest would take ten times longer.
        catalog.snapshot().selected(Selection(), policy)
    # Of so many a bit for each tool is kept; what they leave is kept whole for far fewer.
    assert sizes(catalog, above=SELECTIONS_REMEMBERED) == [kept]
    assert catalog.view(ToolContext(policy=policies[0])).names() == ["echo"], "who was forgotten sees the same again"


async def test_lists_searches_and_lists_with_meta_tools_of_many_policies() -> None:
    catalog = one_tool()
    catalog.profile(Profile(name="chat", include=("core",), exposure="two_tool"))
    count = max(EXPOSED_LISTS, PROVIDER_LISTS, SEARCH_VISIBLE_SETS) + 50
    tools = [f"tool_{number}" for number in range(count.bit_length())]
    for tool in tools:
        catalog.register(ToolSpec(name=tool, groups=("core",)), echo)
    for number in range(count):
        # Each leaves other tools.
        denied = [tool for place, tool in enumerate(tools) if number >> place & 1]
        ctx = ToolContext(policy=Policy(deny=tuple(denied)))
        catalog.exposed(catalog.view(ctx, profile="chat")).export_bytes("mcp")
        catalog.view(ctx).export_bytes("openai")
        await catalog.search(catalog.view(ctx), "echo")
    # Bits alone: those of the profile, and of none.
    assert sizes(catalog, above=count - 50) == [2 * count]


@pytest.mark.slow  # traced for coverage, it takes ten times longer
def test_callers_and_hosts_of_many_requests() -> None:
    contexts = HostContexts(NO_HOST, ToolContext)
    for number in range(CALLERS_REMEMBERED + 50):
        contexts(Principal(identity=Identity(user=f"user {number}"), profile=None))
    assert sizes(contexts, above=CALLERS_REMEMBERED - 1) == [CALLERS_REMEMBERED]
    guard = HostGuard(LOOPBACK_HOSTS)
    for number in range(HOSTS_REMEMBERED + 50):
        assert guard.refusal([(b"host", b"localhost:%d" % number)]) is None
    assert sizes(guard, above=HOSTS_REMEMBERED - 1) == [HOSTS_REMEMBERED]


def test_sessions_and_questions_of_the_loop_guard() -> None:
    guard = LoopGuard()
    for number in range(LOOP_SESSIONS + 50):
        guard.nudges(ToolContext(session_id=f"s{number}"), None, "getTools", {})
    for number in range(LOOP_QUESTIONS + 50):
        guard.nudges(ToolContext(session_id="one"), None, "getTools", {"n": number})
    assert sizes(guard, above=LOOP_QUESTIONS - 1) == [LOOP_QUESTIONS, LOOP_SESSIONS]


def test_used_answers_are_refused_when_too_many_are_remembered_and_never_forgotten_while_they_are_good() -> None:
    now = [0.0]
    sealing = Sealing(KeyCodec((b"k" * 32,)), audience="shop", clock=lambda: now[0])
    assert all(sealing.use_up(str(number)) for number in range(USED_STATES))
    # As one more would push out the first, which is good for ten minutes still, it is not taken.
    assert not sealing.use_up("one more")
    assert not sealing.use_up("0")
    now[0] = REQUEST_STATE_S + 1
    assert sealing.use_up("one more")
