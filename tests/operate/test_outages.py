"""Outages: each part is taken away while Pegboard serves; doctor, /readyz, metrics, log and alerts tell.

The runbooks in docs/howto/outages show what is seen here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pegboard.egress.limits import PROBE_S
from pegboard.server.alert_watch import ALERT_CHECK_S
from pegboard.sources.mcp.connection import MCP_HTTP_PROBE_S
from pegboard.sources.mcp.supervised_source import MCP_HTTP_PING_S, MCP_PING_S, MCP_PROGRAM_START_S
from tests.operate.outages import FROM_THE_NEXT_START, FULL_DISKS, OTHER_WAYS, OUTAGES, Outage, Way, world_of
from tests.operate.runbooks import PAGES, Told, check_page, write_down
from tests.timing import is_within

TOLD_S = 10.0
QUICK = ("openapi", "config", "certificate")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.soak) for name in OUTAGES]
)
async def test_an_outage_is_told_within_ten_seconds_and_so_is_its_end(
    tmp_path: Path, postgres_url: str, name: str
) -> None:
    told = await _lost_and_found(OUTAGES[name], tmp_path, postgres_url, name, "killed")
    check_page(name, told)


@pytest.mark.soak
@pytest.mark.parametrize(("name", "way"), OTHER_WAYS)
async def test_a_part_that_is_stopped_or_misaddressed_is_told_within_ten_seconds_and_so_is_its_end(
    tmp_path: Path, postgres_url: str, name: str, way: Way
) -> None:
    told = await _lost_and_found(OUTAGES[name], tmp_path, postgres_url, name, way)
    write_down(f"{name}-{way}", told)


@pytest.mark.soak
@pytest.mark.parametrize("name", FULL_DISKS)
async def test_a_full_disk_is_told_within_ten_seconds_for_each_store(
    tmp_path: Path, postgres_url: str, name: str
) -> None:
    told = await _lost_and_found(FULL_DISKS[name], tmp_path, postgres_url, f"{name}_disk", "killed")
    write_down(f"{name}-disk", told)


@pytest.mark.soak
@pytest.mark.parametrize("name", FROM_THE_NEXT_START)
async def test_a_wrong_address_that_counts_from_the_next_start_on_is_logged_and_has_a_row_in_doctor(
    tmp_path: Path, postgres_url: str, name: str
) -> None:
    outage = OUTAGES[name]
    async with world_of(outage, tmp_path, postgres_url, f"{name}_later", "misaddressed") as (world, prepared):
        begin, end = prepared.steps("misaddressed")
        await world.seen(outage.is_well, "")
        await world.settle()
        await begin(world)
        away = await world.seen(lambda served: "next start" in str(served.log), outage.doctor)
        await end(world)
        back = await world.seen(outage.is_well, "")
    assert "next start" in str(away.served.log)
    assert outage.is_well(away.served), "the store of before is still used"
    assert (away.served.metrics, away.served.alerts) == ((), ())
    assert outage.doctor in str(away.doctor)
    assert back.doctor == ()
    assert is_within(away.served_s, TOLD_S)
    assert is_within(away.doctor_s, TOLD_S)


@pytest.mark.soak
async def test_a_clock_that_was_set_forward_is_told_within_ten_seconds(tmp_path: Path, postgres_url: str) -> None:
    outage = OUTAGES["clock"]
    async with world_of(outage, tmp_path, postgres_url, "clock_forward") as (world, _):
        await world.seen(outage.is_well, "")
        await world.settle()
        (tmp_path / "shift").write_text("7200")
        away = await world.seen(lambda served: bool(served.alerts and served.metrics), "")
    assert outage.metric in str(away.served.metrics)
    assert "set forward by 7200 s" in str(away.served.alerts)
    assert "went forward by 7200 s" in str(away.served.log)
    assert outage.is_well(away.served)
    assert is_within(away.served_s, TOLD_S)


async def _lost_and_found(outage: Outage, folder: Path, postgres_url: str, name: str, way: Way) -> Told:
    """Take a part away and bring it back while Pegboard serves; check and return what was told."""
    async with world_of(outage, folder, postgres_url, f"{name}_{way}".replace("-", "_"), way) as (world, prepared):
        begin, end = prepared.steps(way)
        if way == "absent":
            world.gauge = outage.metric
        else:
            usual = await world.seen(outage.is_well, "")
            assert outage.is_well(usual.served), usual
            assert usual.doctor == ()
            await world.settle()
        # A server that is called may be too busy to answer anything else, so only an idle one is known to be stopped.
        world.is_calling = way != "stopped"
        if way != "absent":
            await begin(world)
        doctor = outage.doctor_ways.get(way, outage.doctor)
        away = await world.seen(lambda served: outage.is_told(served, way), doctor)
        assert outage.is_told(away.served, way), away
        assert doctor in str(away.doctor), away
        world.forget()
        world.is_calling = True
        await end(world)
        back = await world.seen(outage.is_over, "")
        assert outage.is_over(back.served), back
        assert back.doctor == ()
    assert is_within(away.served_s, TOLD_S)
    assert is_within(away.doctor_s, TOLD_S)
    assert is_within(back.served_s, TOLD_S)
    return Told(away=away, back=back)


def test_a_silent_mcp_server_cannot_go_unnoticed_for_longer_than_ten_seconds() -> None:
    over_stdio, over_http = MCP_PING_S + PROBE_S, MCP_HTTP_PING_S + MCP_HTTP_PROBE_S
    assert max(over_stdio, over_http) + ALERT_CHECK_S < TOLD_S
    assert max(PROBE_S, MCP_PROGRAM_START_S) < TOLD_S


def test_there_is_a_runbook_for_each_outage() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == set(OUTAGES)
