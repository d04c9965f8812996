"""The garbage collector of a server: what lives long is not looked at again and again, and nothing is kept for ever."""

import gc
import weakref
from collections.abc import Generator

import pytest

from pegboard.server.process_memory import COLLECTOR_ASIDE_S, COLLECTOR_PAUSE_S, Collector


class Circle:
    """Something that only the collector can free."""

    def __init__(self) -> None:
        self.me = self


class Clock:
    """A clock on which each look takes some time."""

    def __init__(self) -> None:
        self.now = self.step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def collector(clock: Clock) -> Generator[Collector]:
    collector = Collector(clock)
    collector.begin()
    yield collector
    collector.end()
    gc.unfreeze()


def held_circle() -> tuple[list[Circle], "weakref.ref[Circle]"]:
    circle = Circle()
    return [circle], weakref.ref(circle)


def test_what_a_short_collection_found_alive_is_looked_at_by_the_next(collector: Collector, clock: Clock) -> None:
    held, circle = held_circle()
    clock.step = COLLECTOR_PAUSE_S / 2
    gc.collect()
    held.clear()
    gc.collect()
    assert circle() is None


def test_a_circle_that_a_long_collection_set_aside_is_freed_once_a_minute_is_over(
    collector: Collector, clock: Clock
) -> None:
    held, circle = held_circle()
    before = gc.get_freeze_count()
    clock.step = COLLECTOR_PAUSE_S * 2
    gc.collect()
    assert gc.get_freeze_count() > before
    held.clear()
    gc.collect()
    assert circle() is not None
    clock.now += COLLECTOR_ASIDE_S
    gc.collect()
    assert circle() is None


def test_a_circle_that_was_set_aside_is_freed_once_the_crowd_has_gone(collector: Collector, clock: Clock) -> None:
    held, circle = held_circle()
    clock.step = COLLECTOR_PAUSE_S * 2
    gc.collect()
    held.clear()
    collector.give_back()
    assert circle() is None


def test_a_server_that_ended_leaves_the_collector_alone(collector: Collector) -> None:
    collector.end()
    collector.end()
    assert not [callback for callback in gc.callbacks if "Collector" in repr(callback)]
