"""Outages: each part is taken away while Pegboard serves; doctor, /readyz, metrics, log and alerts tell.

The runbooks in docs/howto/outages show what is seen here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.operate.outages import OUTAGES, world_of
from tests.operate.runbooks import PAGES, Told, check_page
from tests.timing import is_within

TOLD_S = 10.0
QUICK = ("openapi", "config", "certificate")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.soak) for name in OUTAGES]
)
async def test_an_outage_is_told_within_ten_seconds_and_so_is_its_end(
    tmp_path: Path, postgres_url: str, name: str
) -> None:
    outage = OUTAGES[name]
    async with world_of(outage, tmp_path, postgres_url, name.replace("-", "_")) as (world, parts):
        usual = await world.seen(outage.is_well, "")
        assert outage.is_well(usual.served), usual
        assert usual.doctor == ()
        await world.settle()
        await parts.begin(world)
        away = await world.seen(outage.is_told, outage.doctor)
        assert outage.is_told(away.served), away
        assert outage.doctor in str(away.doctor), away
        world.forget()
        await parts.end(world)
        back = await world.seen(outage.is_over, "")
        assert outage.is_over(back.served), back
        assert back.doctor == ()
    assert is_within(away.served_s, TOLD_S)
    assert is_within(back.served_s, TOLD_S)
    check_page(name, Told(away=away, back=back))


def test_there_is_a_runbook_for_each_outage() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == set(OUTAGES)
