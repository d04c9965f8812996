"""Rate limits: the exact moving window, its scopes, its store."""

import asyncio
import math
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard import Catalog, DefinitionError, Profile, RateLimit, ToolContext
from pegboard.limits.memory import MemoryLimitStore
from pegboard.model.record import replace
from pegboard.model.tool import Annotations
from tests.core.parts import ANN, Clock, Recorder, echo, kind_of, one_tool, spec


def limited(calls: int, window_s: float = 60.0, *, clock: Clock | None = None, **said: Any) -> Catalog:
    clock = clock or Clock()
    catalog = Catalog(clock=clock, limit_store=MemoryLimitStore(clock=clock))
    return one_tool(catalog=catalog, rate_limit=RateLimit(max_calls=calls, window_s=window_s, **said))


@pytest.mark.parametrize(
    "text", ["5/²s", "²/5s", "5/1.²s", "5/.s", "5/٣s", "5/s", "9" * 5_000 + "/1s", "1/" + "9" * 5_000 + "s"],
    ids=lambda text: text[:9],
)  # fmt: skip
def test_a_limit_in_other_digits_or_too_many_is_refused_in_words(text: str) -> None:
    with pytest.raises(DefinitionError, match="is not a rate limit"):
        RateLimit.parse(text)
    assert RateLimit.parse("5/.5s") == RateLimit(max_calls=5, window_s=0.5)


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("10/minute", "10/60s"), ("10", "10/60s"), ("10/60", "10/60s"), ("5/s", "5/1s"), ("3 per 2 hours", "3/7200s"),
        ("7 a day", "7/86400s"), ("9/1m", "9/60s"), ("10/0", "10/60s"), ("2/fortnight", "10/60s"), ("many", "10/60s"),
    ],
)  # fmt: skip
def test_a_limit_in_another_notation_is_refused_with_what_to_write(text: str, instead: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        RateLimit.parse(text)
    assert f'{text!r} is not a rate limit; write calls and seconds, such as "{instead}" for' in str(refused.value)
    assert RateLimit.parse(instead).window_s > 0


async def test_a_limit_is_declared_as_a_config_writes_it() -> None:
    catalog = Catalog()

    @catalog.tool(rate_limit={"max_calls": 1, "window_seconds": 60, "scope": "user", "when_store_is_down": "open"})
    def once() -> str:
        return "done"

    limit = RateLimit(max_calls=1, window_s=60, scope="user", when_store_is_down="open")
    view = catalog.view(ToolContext())
    assert [entry.spec.rate_limit for entry in view.tools()] == [limit]
    assert (await view.call("once", {})).text == "done"
    assert kind_of(await view.call("once", {})) == "rate_limited"


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        ({"max_calls": 1}, r"\{'max_calls': 1\} is not a rate limit; it has max_calls and window_seconds"),
        ({"max_calls": 1, "window_s": 60}, "is not a rate limit; it has max_calls and window_seconds"),
        ({"max_calls": "1", "window_seconds": 60}, "max_calls must be a whole number"),
        ({"max_calls": True, "window_seconds": 60}, "max_calls must be a whole number"),
        ({"max_calls": 1, "window_seconds": "60"}, "must be a number of seconds"),
        ({"max_calls": 1, "window_seconds": math.nan}, "makes no sense"),
        ({"max_calls": 1, "window_seconds": 60, "scope": "team"}, "scope='team' of a rate limit must be one of caller"),
        ({"max_calls": 1, "window_seconds": 60, "when_store_is_down": "no"}, "must be one of None, closed, open"),
    ],
)
def test_a_limit_that_is_none_is_refused_where_it_is_declared(limit: Any, text: str) -> None:
    def once() -> str:
        return "done"

    with pytest.raises(DefinitionError, match=rf"test_ratelimit:\d+: rate_limit: .*{text}"):
        Catalog().tool(rate_limit=limit)(once)


# ---------------------------------------------------------------- the window


@given(
    steps=st.lists(st.integers(0, 7), max_size=80),
    calls=st.integers(1, 4),
    window_s=st.integers(1, 10),
)
def test_no_window_ever_holds_more_than_the_limit_and_nothing_is_refused_needlessly(
    steps: list[int], calls: int, window_s: int
) -> None:
    clock = Clock()
    store, hits = MemoryLimitStore(clock=clock), [(("k",), RateLimit(max_calls=calls, window_s=window_s))]
    accepted: list[float] = []
    for step in steps:
        clock.now += step
        live = [at for at in accepted if clock.now - at < window_s]
        wait_s = store.wait_s(hits, charge=True)
        assert (wait_s == 0.0) == (len(live) < calls)
        if wait_s == 0.0:
            accepted.append(clock.now)
        else:
            assert wait_s == window_s - (clock.now - live[-calls]), "exactly then one more fits"
    assert all(sum(start <= at < start + window_s for at in accepted) <= calls for start in accepted)


async def test_the_window_is_half_open() -> None:
    clock = Clock(0.0)
    view = limited(1, clock=clock).view(ANN)
    assert kind_of(await view.call("echo")) == "ok"
    clock.now = 59.999
    refused = await view.call("echo")
    assert refused.error is not None
    assert (refused.error.kind, refused.error.retryable) == ("rate_limited", True)
    assert refused.error.retry_after_s == pytest.approx(0.001)
    assert "temporarily unavailable" in refused.text
    assert "Other tools may be used" in refused.text
    clock.now = 60.0
    assert kind_of(await view.call("echo")) == "ok", "a call exactly a window old no longer counts"


async def test_a_refused_call_is_not_recorded() -> None:
    clock = Clock(0.0)
    view = limited(1, 10.0, clock=clock).view(ANN)
    assert kind_of(await view.call("echo")) == "ok"
    for clock.now in range(1, 10):
        assert kind_of(await view.call("echo")) == "rate_limited"
    clock.now = 10.0
    assert kind_of(await view.call("echo")) == "ok"


@pytest.mark.parametrize("is_async", [True, False])
async def test_500_concurrent_calls_on_a_limit_of_50_let_exactly_50_through(is_async: bool) -> None:
    ran: list[int] = []
    recorder = Recorder()

    async def work(ctx: Any, args: Any) -> None:
        ran.append(1)
        await asyncio.sleep(0)

    def work_in_thread(ctx: Any, args: Any) -> None:
        ran.append(1)

    catalog = one_tool(work if is_async else work_in_thread, rate_limit=RateLimit(max_calls=50, window_s=60.0))
    view = catalog.view(ANN)
    results = await asyncio.gather(*(view.call("echo", callbacks=recorder) for _ in range(500)))
    kinds = [kind_of(result) for result in results]
    assert (kinds.count("ok"), kinds.count("rate_limited"), len(ran)) == (50, 450, 50)
    assert len(recorder.results()) == 500


def test_the_store_is_exact_under_threads() -> None:
    store, hits = MemoryLimitStore(), [(("k",), RateLimit(max_calls=100, window_s=600.0))]
    gate = threading.Barrier(8)
    passed: list[float | None] = []

    def hammer() -> None:
        gate.wait()
        passed.extend(store.wait_s(hits, charge=True) for _ in range(100))

    threads = [threading.Thread(target=hammer) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert passed.count(0.0) == 100


async def test_max_calls_0_refuses_all_for_good() -> None:
    result = await limited(0).view(ANN).call("echo")
    assert result.error is not None
    assert (result.error.kind, result.error.retryable, result.error.retry_after_s) == ("rate_limited", False, None)


# ---------------------------------------------------------------- scopes

ANN_2 = replace(ANN, session_id="other", client=None, request_id="r2")
BOB = replace(ANN, user_id="bob")
ELSEWHERE = replace(ANN, space_id="s2")
BOT = replace(ANN, agent="bot")


@pytest.mark.parametrize(
    ("scope", "apart", "together"),
    [
        ("caller", [BOB, ELSEWHERE, BOT], [ANN_2]),
        ("user", [BOB], [ELSEWHERE, BOT, ANN_2]),
        ("space", [ELSEWHERE], [BOB, BOT, ANN_2]),
        ("agent", [BOT], [BOB, ELSEWHERE, ANN_2]),
        ("session", [ANN_2], [BOB, ELSEWHERE, BOT]),
        ("tool", [], [BOB, ELSEWHERE, BOT, ANN_2]),
    ],
)
async def test_a_scope_says_who_is_counted_together(
    scope: Any, apart: list[ToolContext], together: list[ToolContext]
) -> None:
    catalog = limited(1, scope=scope)
    assert kind_of(await catalog.view(ANN).call("echo")) == "ok"
    assert [kind_of(await catalog.view(ctx).call("echo")) for ctx in apart] == ["ok"] * len(apart)
    assert {kind_of(await catalog.view(ctx).call("echo")) for ctx in together} == (
        {"rate_limited"} if together else set()
    )


async def test_two_callers_whose_names_would_run_together_are_kept_apart() -> None:
    catalog = limited(1)
    one = ToolContext(space_id="a", user_id="b,c", budget=None)
    other = ToolContext(space_id="a,b", user_id="c", budget=None)
    none = ToolContext(space_id="None", user_id=None, budget=None)
    nobody = ToolContext(space_id=None, user_id="None", budget=None)
    assert [kind_of(await catalog.view(ctx).call("echo")) for ctx in (one, other, none, nobody)] == ["ok"] * 4


async def test_each_tool_has_its_own_window_and_a_profile_one_over_all_its_tools() -> None:
    clock = Clock()
    catalog = Catalog(clock=clock, limit_store=MemoryLimitStore(clock=clock))
    for name in ("a", "b"):
        catalog.register(spec(name, rate_limit=RateLimit(max_calls=2, window_s=60.0)), echo)
    catalog.profile(Profile(name="chat", rate_limit=RateLimit(max_calls=3, window_s=60.0)))
    view = catalog.view(ANN, profile="chat")
    assert [kind_of(await view.call(name)) for name in "aaabb"] == ["ok", "ok", "rate_limited", "ok", "rate_limited"]
    outside = catalog.view(ANN)
    assert kind_of(await outside.call("b")) == "ok", "what the profile refused was charged to nobody"


async def test_a_default_limit_applies_to_each_tool_without_its_own() -> None:
    catalog = one_tool()
    catalog.registry.change(default_limit=RateLimit(max_calls=1, window_s=60.0))
    catalog.register(spec("other"), echo)
    assert [kind_of(await catalog.view(ANN).call(name)) for name in ("echo", "other", "echo")] == [
        "ok",
        "ok",
        "rate_limited",
    ]


# ---------------------------------------------------------------- memory


def test_memory_is_bounded_and_old_keys_make_room() -> None:
    clock = Clock(0.0)
    store = MemoryLimitStore(clock=clock, max_keys=3)
    limit = RateLimit(max_calls=1, window_s=10.0)
    assert [store.wait_s([((key,), limit)], charge=True) for key in "abc"] == [0.0] * 3
    refused = [store.wait_s([((key,), limit)], charge=True) for key in "de"]
    assert refused == [10.0, 10.0], "full: a new caller is refused, not forgotten"
    clock.now = 10.0
    assert store.wait_s([(("d",), limit)], charge=True) == 0.0
    assert len(store) <= 3


def test_no_limit_at_all_lets_everything_through() -> None:
    assert MemoryLimitStore(clock=Clock()).wait_s([], charge=True) == 0.0


def test_looking_at_a_limit_charges_nothing() -> None:
    store, hits = MemoryLimitStore(clock=Clock()), [(("k",), RateLimit(max_calls=1, window_s=10.0))]
    assert [store.wait_s(hits, charge=charge) for charge in (False, False, True, False)] == [0.0, 0.0, 0.0, 10.0]


# ---------------------------------------------------------------- a store that is away


class Away:
    """A store that cannot be reached until it can."""

    def __init__(self, error: Exception | None) -> None:
        self.error, self.asked = error, 0

    def wait_s(self, hits: Sequence[Any], *, charge: bool) -> Any:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return 0.0


class AwayLater(Away):
    async def wait_s(self, hits: Sequence[Any], *, charge: bool) -> Any:
        await asyncio.sleep(0)
        return Away.wait_s(self, hits, charge=charge)


@pytest.mark.parametrize("store", [Away, AwayLater])
@pytest.mark.parametrize(
    ("rule", "read_only", "kinds"),
    [
        ("closed", True, ["ratelimit_unavailable"] * 3),
        ("open", False, ["ok"] * 3),
        ("local", False, ["ok", "ok", "rate_limited"]),
        (None, False, ["ratelimit_unavailable"] * 3),
        (None, True, ["ok", "ok", "rate_limited"]),
    ],
)
async def test_without_its_store_a_limit_decides_by_its_rule(
    store: type[Away], rule: Any, read_only: bool, kinds: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    away = store(ConnectionRefusedError("no redis"))
    limit = RateLimit(max_calls=2, window_s=60.0, when_store_is_down=rule)
    hints = Annotations(read_only=read_only)
    catalog = one_tool(catalog=Catalog(limit_store=away), rate_limit=limit, annotations=hints)
    view = catalog.view(ANN)
    results = [await view.call("echo") for _ in range(3)]
    assert [kind_of(result) for result in results] == kinds
    assert caplog.text.count("store is down") == 1, "once in an outage"
    assert "redis" not in "".join(result.text for result in results)
    away.error = None
    assert kind_of(await view.call("echo")) == "ok", "it recovers with the next call"
    away.error = ConnectionRefusedError("no redis")
    await view.call("echo")
    # A store that answers at once is in this process, and does not come back.
    assert caplog.text.count("store is down") == (2 if store is AwayLater else 1)


@pytest.mark.parametrize(
    "text", ["10/60", "10 per 60s", "-1/60s", "10/0s", "", "/60s", "10/s", "1.5/60s", "١/60s", "10/1e9s", "10/60s "]
)
def test_a_limit_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError):
        RateLimit.parse(text)


def test_a_limit_is_read_from_text() -> None:
    assert RateLimit.parse("10/60s") == RateLimit(max_calls=10, window_s=60.0)
    assert RateLimit.parse("0/0.5s") == RateLimit(max_calls=0, window_s=0.5)


async def test_a_limit_store_that_answers_later_is_awaited_for_looking_and_for_charging() -> None:
    inner, asked = MemoryLimitStore(), list[bool]()

    class Remote:
        async def wait_s(self, hits: Any, *, charge: bool) -> float | None:
            await asyncio.sleep(0)
            asked.append(charge)
            return inner.wait_s(hits, charge=charge)

    limit = RateLimit(max_calls=1, window_s=60.0)
    catalog = one_tool(catalog=Catalog(limit_store=Remote()), rate_limit=limit, consent="always")
    view = catalog.view(replace(ANN, approve=lambda request: True))
    assert [kind_of(await view.call("echo")) for _ in range(2)] == ["ok", "rate_limited"]
    assert asked == [False, True, False]
