"""The bounded cache: never more than its limit, and of one too many the oldest goes."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.core.bounded_cache import BoundedCache


def test_remembering_returns_the_value() -> None:
    cache = BoundedCache[str, int](max_entries=2)
    assert cache.remember("a", 1) == 1
    assert cache.get("a") == 1
    assert cache.get("b") is None


def test_of_one_too_many_the_oldest_goes_and_the_others_stay() -> None:
    cache = BoundedCache[str, int](max_entries=3)
    for number, key in enumerate("abcd"):
        cache.remember(key, number)
    assert cache == {"b": 1, "c": 2, "d": 3}


def test_remembered_again_is_young_again_and_pushes_nobody_out() -> None:
    cache = BoundedCache[str, int](max_entries=2)
    cache.remember("a", 1)
    cache.remember("b", 2)
    cache.remember("a", 3)
    assert cache == {"a": 3, "b": 2}
    cache.remember("c", 4)
    assert cache == {"a": 3, "c": 4}


def test_reading_makes_no_entry_younger() -> None:
    cache = BoundedCache[str, int](max_entries=2)
    cache.remember("a", 1)
    cache.remember("b", 2)
    assert cache["a"] == 1
    cache.remember("c", 3)
    assert cache == {"b": 2, "c": 3}


def test_an_entry_can_be_taken_out() -> None:
    cache = BoundedCache[str, int](max_entries=1)
    cache.remember("a", 1)
    assert cache.pop("a") == 1
    assert not cache


@given(max_entries=st.integers(1, 6), keys=st.lists(st.integers(0, 9)))
def test_it_holds_the_last_different_keys(max_entries: int, keys: list[int]) -> None:
    cache = BoundedCache[int, int](max_entries=max_entries)
    for place, key in enumerate(keys):
        cache.remember(key, place)
    youngest_first = list(dict.fromkeys(reversed(keys)))
    assert list(reversed(cache)) == youngest_first[:max_entries]


@pytest.mark.parametrize("max_entries", [1, 5])
def test_threads_that_remember_at_once_never_pass_the_limit(max_entries: int) -> None:
    cache = BoundedCache[int, int](max_entries=max_entries)

    def fill(first: int) -> None:
        for number in range(first, first + 2_000):
            cache.remember(number, number)

    threads = [threading.Thread(target=fill, args=(10_000 * place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cache) == max_entries
