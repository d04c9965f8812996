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
