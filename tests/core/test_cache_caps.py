"""Caps of what is remembered: each cache holds no more than its bound says, whatever callers send."""

from typing import Any

from pegboard import Policy, Profile, Secret, ToolContext, ToolSpec
from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.judge import Selection
from pegboard.discovery.meta_tools.loop_guard import LoopGuard
from pegboard.model import bounds
from pegboard.model.host import NO_HOST
from pegboard.server.host_guard import LOOPBACK_HOSTS, HostGuard
from pegboard.server.mcp.request_states import sealing_with
from pegboard.server.principal import HostContexts, Identity, Principal
from tests.core.parts import echo, one_tool


def caches_of(holder: Any, cap: int) -> list[BoundedCache[Any, Any]]:
    """Return the caches of an object that are full to their cap; more in one of them fails."""
    values = [getattr(holder, name, None) for kind in type(holder).__mro__ for name in getattr(kind, "__slots__", ())]
    values += vars(holder).values() if hasattr(holder, "__dict__") else []
    found = [value for value in values if isinstance(value, BoundedCache)]
    assert found
    for cache in found:
        assert len(cache) <= cap
    return [cache for cache in found if len(cache) == cap]


def test_redactors_of_many_sets_of_secrets() -> None:
    guards = one_tool().guards
    for number in range(bounds.REDACTORS_REMEMBERED + 50):
        guards.redactor(ToolContext(secrets={"token": Secret(f"secret-{number}")}))
    assert caches_of(guards, bounds.REDACTORS_REMEMBERED)


def test_selections_of_many_policies() -> None:
    catalog = one_tool()
    catalog.register(ToolSpec(name="other"), echo)
    for number in range(bounds.SELECTIONS_REMEMBERED + 50):
        policy = Policy(deny=("other", f"main.none_{number}"))
        assert catalog.view(ToolContext(policy=policy)).names() == ["echo"]
    selections: Any = catalog.snapshot()._selections  # pyright: ignore[reportPrivateUsage]
    assert len(selections._whole) == bounds.SELECTIONS_REMEMBERED
    assert len(catalog.snapshot().cache) < 50, "a policy has no place there of its own"
    first = Policy(deny=("other", "main.none_0"))
    assert catalog.view(ToolContext(policy=first)).names() == ["echo"], "who was forgotten sees the same again"

    for number in range(bounds.SELECTIONS_KEPT + 50):
        selections.remember((Selection(), Policy(deny=(f"none_{number}",))), b"\1\0")
    assert len(selections._bits) == bounds.SELECTIONS_KEPT


def test_lists_for_a_provider_and_lists_with_meta_tools_of_many_policies() -> None:
    catalog = one_tool()
    catalog.profile(Profile(name="chat", include=("core",), exposure="two_tool"))
    for number in range(bounds.EXPOSED_LISTS + 50):
        ctx = ToolContext(policy=Policy(deny=(f"main.none_{number}",)))
        catalog.exposed(catalog.view(ctx, profile="chat")).export_bytes("mcp")
        catalog.view(ctx).export_bytes("openai")
    caches = [value for value in catalog.snapshot().cache.values() if isinstance(value, BoundedCache)]
    assert len(caches) >= 2
    assert all(len(cache) <= max(bounds.EXPOSED_LISTS, bounds.PROVIDER_LISTS) for cache in caches)


async def test_visible_sets_of_a_search_by_many_policies() -> None:
    catalog = one_tool()
    for number in range(bounds.SEARCH_VISIBLE_SETS + 50):
        await catalog.search(catalog.view(ToolContext(policy=Policy(deny=(f"main.none_{number}",)))), "echo")
    built: Any = catalog.discovery.finder._built  # pyright: ignore[reportPrivateUsage]
    assert len(built.visible) <= bounds.SEARCH_VISIBLE_SETS


def test_callers_and_hosts_of_many_requests() -> None:
    contexts = HostContexts(NO_HOST, ToolContext)
    for number in range(bounds.CALLERS_REMEMBERED + 50):
        contexts(Principal(identity=Identity(user=f"user {number}"), profile=None))
    assert caches_of(contexts, bounds.CALLERS_REMEMBERED)
    guard = HostGuard(LOOPBACK_HOSTS)
    for number in range(bounds.HOSTS_REMEMBERED + 50):
        assert guard.refusal([(b"host", b"localhost:%d" % number)]) is None
    assert caches_of(guard, bounds.HOSTS_REMEMBERED)


def test_sessions_and_questions_of_the_loop_guard() -> None:
    guard = LoopGuard()
    for number in range(bounds.LOOP_SESSIONS + 50):
        guard.nudges(ToolContext(session_id=f"s{number}"), None, "getTools", {})
    for number in range(bounds.LOOP_QUESTIONS + 50):
        guard.nudges(ToolContext(session_id="one"), None, "getTools", {"n": number})
    [sessions] = caches_of(guard, bounds.LOOP_SESSIONS)
    assert max(map(len, sessions.values())) == bounds.LOOP_QUESTIONS


def test_used_answers_are_refused_when_too_many_are_remembered_and_never_forgotten_while_they_are_good() -> None:
    now = [0.0]
    sealing = sealing_with(audience="shop")
    sealing._clock = lambda: now[0]  # pyright: ignore[reportPrivateUsage]
    assert all(sealing.use_up(str(number)) for number in range(bounds.USED_STATES))
    # As one more would push out the first, which is good for ten minutes still, it is not taken.
    assert not sealing.use_up("one more")
    assert not sealing.use_up("0")
    now[0] = bounds.REQUEST_STATE_S + 1
    assert sealing.use_up("one more")
