"""The log has one line when a part stops working, and one when it works again, whoever asks and however often."""

import logging

import pytest

from pegboard.model.probe import Part
from pegboard.telemetry.part_states import PROBE_KEPT_S, PartStates


async def test_a_part_is_logged_once_when_it_is_lost_and_once_when_it_returns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now, faults = 0.0, ["", "gone", "still gone", "", ""]

    async def check() -> None:
        if fault := faults.pop(0):
            raise OSError(fault)

    part = Part(kind="store", name="tasks", where="", check=check)
    states = PartStates(lambda: [part], clock=lambda: now)
    with caplog.at_level(logging.WARNING, logger="pegboard"):
        while faults:
            now += PROBE_KEPT_S
            await states.probes()
            await states.probes()
    assert [record.getMessage() for record in caplog.records] == [
        "part_lost: the store tasks does not work: gone",
        "part_returned: the store tasks works again",
    ]


async def test_a_lost_part_that_the_config_does_not_use_any_more_is_logged_as_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def check() -> None:
        raise OSError("gone")

    part = Part(kind="model", name="default (http://mistyped)", where="", check=check)
    used, of_source = [part], Part(kind="server", name="of shop", where="", check=check, source="shop")
    states = PartStates(lambda: [*used], clock=lambda: 0.0)
    with caplog.at_level(logging.WARNING, logger="pegboard"):
        await states.probes()
        used[:] = [of_source]
        await states.probes()
        used.clear()
        await states.probes()
    assert [record.getMessage() for record in caplog.records] == [
        "part_lost: the model default (http://mistyped) does not work: gone",
        "part_returned: the config no longer uses the model default (http://mistyped)",
        # Its source does not work, and tells so itself.
        "part_lost: the server of shop does not work: gone",
    ]
