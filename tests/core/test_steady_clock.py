"""The steady clock follows the machine's clock forward and never back."""

import logging

import pytest

from pegboard.core.steady_clock import CLOCK_BACK_S, CLOCK_FORWARD_S, CLOCK_TOLD_S, SteadyClock, steady_time
from pegboard.model.record import replace
from tests.core.parts import Clock
from tests.server.doors import workshop


@pytest.fixture
def wall() -> Clock:
    return Clock(1_000_000.0)


@pytest.fixture
def elapsed() -> Clock:
    return Clock(50.0)


def test_a_jump_forward_is_logged_once_and_small_steps_are_not(
    wall: Clock, elapsed: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    steady = SteadyClock(wall, monotonic_clock=elapsed)
    for step_s in (CLOCK_FORWARD_S, 7_200.0, 0.0):
        wall.now += step_s
        steady()
    (record,) = caplog.records
    assert (record.levelname, "went forward by 7200 s" in record.getMessage()) == ("WARNING", True)


def test_it_follows_the_machines_clock_and_its_steps_forward(wall: Clock, elapsed: Clock) -> None:
    steady = SteadyClock(wall, monotonic_clock=elapsed)
    assert steady() == 1_000_000.0
    wall.now, elapsed.now = wall.now + 10, elapsed.now + 10
    assert steady() == 1_000_010.0
    # As after a suspend, in which the monotonic clock stands still.
    wall.now += 3_600
    assert steady() == 1_003_610.0


def test_time_goes_on_at_the_same_pace_after_the_clock_was_set_back(wall: Clock, elapsed: Clock) -> None:
    steady = SteadyClock(wall, monotonic_clock=elapsed)
    wall.now -= 3_600
    assert steady() == 1_000_000.0
    wall.now, elapsed.now = wall.now + 60, elapsed.now + 60
    assert steady() == 1_000_060.0
    # Set right again, and a little ahead.
    wall.now += 3_600 + 5
    assert steady() == 1_000_065.0


def test_a_clock_set_back_is_logged_once_with_what_to_do(
    wall: Clock, elapsed: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    steady = SteadyClock(wall, monotonic_clock=elapsed)
    with caplog.at_level(logging.ERROR, logger="pegboard"):
        wall.now -= 59
        steady()
        assert caplog.messages == []
        wall.now -= 3_541
        for _ in range(3):
            steady()
        [message] = caplog.messages
        assert "set back by 3600 s" in message
        assert "restart it" in message
        wall.now += 3_601
        steady()
        wall.now -= 61
        steady()
    assert len(caplog.messages) == 2


def test_a_catalog_judges_by_it_unless_a_clock_is_passed() -> None:
    catalog, _ = workshop()
    assert (catalog.executor.ports.wall_clock, catalog.registry.wall_clock) == (steady_time, steady_time)
    clock = Clock()
    catalog.executor.swap(replace(catalog.executor.ports, wall_clock=clock))
    assert catalog.registry.wall_clock is clock


async def test_a_clock_that_was_set_back_is_a_fault_until_it_is_right_again() -> None:
    wall = 1_000.0
    clock = SteadyClock(lambda: wall, monotonic_clock=lambda: 0.0)
    clock()
    wall -= CLOCK_BACK_S
    await clock.check()
    wall -= 1.0
    with pytest.raises(OSError, match="was set back by 61 s"):
        await clock.check()
    wall += 1.0
    await clock.check()


async def test_a_clock_that_was_set_forward_is_a_fault_for_ten_minutes_and_a_suspend_is_none(
    wall: Clock, elapsed: Clock
) -> None:
    boot = Clock(70.0)
    clock = SteadyClock(wall, monotonic_clock=elapsed, boot_clock=boot)
    # A suspend of an hour, in which the monotonic clock stands still.
    wall.now, boot.now = wall.now + 3_600, boot.now + 3_600
    await clock.check()
    wall.now += 7_200
    with pytest.raises(OSError, match="was set forward by 7200 s"):
        await clock.check()
    for each in (wall, elapsed, boot):
        each.now += CLOCK_TOLD_S
    await clock.check()


async def test_without_a_clock_that_counts_a_suspend_a_step_forward_is_no_fault(wall: Clock, elapsed: Clock) -> None:
    clock = SteadyClock(wall, monotonic_clock=elapsed)
    wall.now += 7_200
    await clock.check()
