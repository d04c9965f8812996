"""datetime_now and cache_store."""

import gc
import tracemalloc
from datetime import UTC, datetime

import pytest

from pegboard import DefinitionError
from pegboard.sources.builtin.builtins import builtin_entry
from tests.builtin.parts import shelf
from tests.core.parts import Clock

NOON = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)


async def test_the_time_comes_in_the_zone_that_was_asked_for() -> None:
    tools = shelf("datetime_now", now=lambda: NOON)
    assert await tools.value("datetime_now") == {
        "datetime": "2026-07-01T12:00:00+00:00",
        "timezone": "UTC",
        "unix_timestamp": 1782907200.0,
    }
    berlin = await tools.value("datetime_now", {"timezone": "Europe/Berlin"})
    assert (berlin["datetime"], berlin["unix_timestamp"]) == ("2026-07-01T14:00:00+02:00", 1782907200.0)


@pytest.mark.parametrize(
    ("said", "near"),
    [("europe/berlin", "Europe/Berlin"), ("Tokyo", "Asia/Tokyo"), ("Europe/Brelin", "Europe/Berlin"), ("", "UTC"),
     ("../../../etc/passwd", "IANA"), ("Mars/Olympus Mons", "IANA"), ("a\0b", "IANA"), ("Europe", "Europe")],
)  # fmt: skip
async def test_an_unknown_zone_is_refused_with_near_names(said: str, near: str) -> None:
    error = await shelf("datetime_now").error("datetime_now", {"timezone": said})
    assert error.kind == "invalid_arguments"
    assert near in error.message


async def test_a_value_is_kept_across_calls_until_it_is_deleted() -> None:
    tools = shelf("cache_store")
    value = {"title": "Plan", "steps": [1, None, "ü"]}
    assert await tools.value("cache_store", {"action": "get", "key": "k"}) == {
        "key": "k",
        "found": False,
        "value": None,
    }
    assert await tools.value("cache_store", {"action": "set", "key": "k", "value": value}) == {
        "key": "k",
        "found": False,
    }
    assert await tools.value("cache_store", {"action": "get", "key": "k"}) == {
        "key": "k",
        "found": True,
        "value": value,
    }
    assert await tools.value("cache_store", {"action": "delete", "key": "k"}) == {"key": "k", "found": True}
    assert await tools.value("cache_store", {"action": "get", "key": "k"}) == {
        "key": "k",
        "found": False,
        "value": None,
    }


async def test_null_is_a_value_and_a_missing_one_is_refused() -> None:
    tools = shelf("cache_store")
    await tools.value("cache_store", {"action": "set", "key": "k", "value": None})
    assert (await tools.value("cache_store", {"action": "get", "key": "k"}))["found"] is True
    assert (await tools.error("cache_store", {"action": "set", "key": "k"})).kind == "invalid_arguments"
    assert (await tools.error("cache_store", {"action": "get", "key": "k", "ttl_s": 1})).kind == "invalid_arguments"


async def test_another_space_never_sees_a_value() -> None:
    tools = shelf("cache_store")
    await tools.value("cache_store", {"action": "set", "key": "k", "value": "of s1"}, space_id="s1")
    for other in ("s2", None, ""):
        assert (await tools.value("cache_store", {"action": "get", "key": "k"}, space_id=other))["found"] is False
        await tools.value("cache_store", {"action": "delete", "key": "k"}, space_id=other)
        await tools.value("cache_store", {"action": "set", "key": "k", "value": "mine"}, space_id=other)
    assert (await tools.value("cache_store", {"action": "get", "key": "k"}, space_id="s1"))["value"] == "of s1"
    # Everybody in the space shares it by default.
    assert (await tools.value("cache_store", {"action": "get", "key": "k"}, user_id="bob"))["value"] == "of s1"


async def test_a_user_scope_keeps_people_apart_and_needs_a_person() -> None:
    tools = shelf("cache_store", {"scope": "user"})
    await tools.value("cache_store", {"action": "set", "key": "k", "value": 1}, user_id="ann")
    assert (await tools.value("cache_store", {"action": "get", "key": "k"}, user_id="bob"))["found"] is False
    assert (await tools.error("cache_store", {"action": "get", "key": "k"}, user_id=None)).kind == "tool_error"


async def test_a_value_is_forgotten_when_its_time_is_over() -> None:
    clock = Clock()
    tools = shelf("cache_store", clock=clock)
    await tools.value("cache_store", {"action": "set", "key": "k", "value": 1, "ttl_s": 10})
    clock.now += 9.9
    assert (await tools.value("cache_store", {"action": "get", "key": "k"}))["found"] is True
    clock.now += 0.1
    assert (await tools.value("cache_store", {"action": "get", "key": "k"}))["found"] is False


async def test_the_cache_is_bounded_in_entries_values_and_all() -> None:
    tools = shelf("cache_store", {"max_entries": 2, "max_value": 100})
    for key in ("a", "b"):
        await tools.value("cache_store", {"action": "set", "key": key, "value": key})
    await tools.value("cache_store", {"action": "get", "key": "a"})
    await tools.value("cache_store", {"action": "set", "key": "c", "value": "c"})
    found = {key: (await tools.value("cache_store", {"action": "get", "key": key}))["found"] for key in "abc"}
    assert found == {"a": True, "b": False, "c": True}
    assert (
        await tools.error("cache_store", {"action": "set", "key": "d", "value": "x" * 99})
    ).kind == "invalid_arguments"


async def test_one_space_cannot_push_out_the_values_of_another() -> None:
    tools = shelf("cache_store", {"max_total_bytes": 20_000, "max_entries": 1000})
    await tools.value("cache_store", {"action": "set", "key": "k", "value": "x" * 4000}, space_id="quiet")
    for index in range(50):
        await tools.value("cache_store", {"action": "set", "key": str(index), "value": "y" * 1000}, space_id="loud")
    assert (await tools.value("cache_store", {"action": "get", "key": "k"}, space_id="quiet"))["found"] is True
    assert (await tools.value("cache_store", {"action": "get", "key": "49"}, space_id="loud"))["found"] is True
    # Its own oldest ones have made room.
    assert (await tools.value("cache_store", {"action": "get", "key": "40"}, space_id="loud"))["found"] is False
    full = await tools.error("cache_store", {"action": "set", "key": "z", "value": "z" * 17_000}, space_id="loud")
    assert full.kind == "storage_unavailable"


async def test_what_is_too_old_makes_room_for_every_space() -> None:
    clock = Clock()
    tools = shelf("cache_store", {"max_total_bytes": 20_000}, clock=clock)
    old = {"action": "set", "key": "k", "value": "x" * 12_000, "ttl_s": 5}
    await tools.value("cache_store", old, space_id="gone")
    new = {"action": "set", "key": "k", "value": "y" * 12_000}
    assert (await tools.error("cache_store", new)).kind == "storage_unavailable"
    clock.now += 5
    await tools.value("cache_store", new)
    assert (await tools.value("cache_store", {"action": "get", "key": "k"}))["found"] is True


@pytest.mark.parametrize("scope", ["space", "session"])
async def test_the_cap_in_bytes_counts_what_many_tiny_values_cost(scope: str) -> None:
    cap = 200_000
    tools = shelf("cache_store", {"max_total_bytes": cap, "max_entries": 100_000, "scope": scope})
    await tools.value("cache_store", {"action": "set", "key": "first", "value": 1}, session_id="first")
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for index in range(1000):
            args = {"action": "set", "key": f"\U0001f511{index}", "value": index}
            # Where each has a session of its own, there is nothing to push out: it is full.
            result = await tools.call("cache_store", args, session_id=f"of-{index}")
            assert result.error is None or (scope, result.error.kind) == ("session", "storage_unavailable")
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < cap


async def test_a_session_scope_keeps_the_sessions_of_everybody_apart() -> None:
    tools = shelf("cache_store", {"scope": "session"})
    mine = {"user_id": "ann", "session_id": "1"}
    await tools.value("cache_store", {"action": "set", "key": "k", "value": 1}, **mine)
    for other in ({"session_id": "2"}, {"user_id": "bob"}, {"user_id": None}, {"space_id": "s2"}):
        assert (await tools.value("cache_store", {"action": "get", "key": "k"}, **mine | other))["found"] is False
    assert (await tools.value("cache_store", {"action": "get", "key": "k"}, **mine))["found"] is True
    none = await tools.error("cache_store", {"action": "get", "key": "k"}, user_id="ann", session_id=None)
    assert (none.kind, "for each session" in none.message) == ("tool_error", True)


def test_an_unknown_tool_or_key_is_refused_by_its_name() -> None:
    with pytest.raises(DefinitionError, match="Did you mean 'cache_store'"):
        builtin_entry("cache_stor")
    with pytest.raises(DefinitionError, match=r"unknown key 'max_entrys'.*Did you mean 'max_entries'"):
        builtin_entry("cache_store", config={"max_entrys": 1})
    with pytest.raises(DefinitionError, match="roots' is missing"):
        builtin_entry("read_file")
