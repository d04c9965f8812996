"""The console in a real browser: no fault on any page, in light and dark, on a phone and a wide screen, at any size."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pegboard import CallContext, Catalog, Policy, Profile, Tasks
from pegboard.consent.sqlite_store import SqliteConsents
from pegboard.server.app import AppOptions, app_of
from tests.e2e.test_real_clients import CLIENTS
from tests.security.test_console import HIDING, MARKUP
from tests.server.doors import listening
from tests.timing import PATIENCE_S

pytestmark = pytest.mark.e2e
ENDLESS = "x" * 180  # a word that breaks, or else widens the page
DRAWN_MS = 500  # CPU for 5,000 pegs
MANY = 1_000  # tools


async def walked(**told: Any) -> dict[str, Any]:
    """Return what a browser saw; see `console.mjs`."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        "node", "console.mjs", json.dumps(told), stdout=pipe, stderr=pipe, cwd=CLIENTS
    )
    said, errors = await asyncio.wait_for(process.communicate(), 10 * PATIENCE_S)
    assert process.returncode == 0, errors.decode()
    return json.loads(said)


def pictures(name: str) -> str:
    """Return the folder for the pictures of a walk, in that of `PEGBOARD_PICTURES`; empty without that variable."""
    parent = os.environ.get("PEGBOARD_PICTURES", "")
    return parent and str(Path(parent, name))


def shop(folder: Path, count: int) -> Catalog:
    """Return a catalog with so many tools, some of them hidden, asking or hostile."""
    catalog = Catalog("shop", consent_store=SqliteConsents(folder / "consents.db"), tasks=Tasks("memory"))
    for number in range(count - 3):
        catalog.tool(
            name=f"{('read', 'write', 'find', 'send')[number % 4]}_orders_{number}", namespace=f"team{number // 60}",
            groups="core" if number % 3 else "admin", consent="always" if number % 17 == 1 else "never",
        )(lambda page: page)  # fmt: skip
    if count:
        catalog.tool(name="hostile", namespace="hostile", description=MARKUP + HIDING)(lambda text: [{MARKUP: text}])

        @catalog.tool(task="optional")
        async def report(ctx: CallContext) -> str:
            await asyncio.Event().wait()
            return ""

        @catalog.tool(consent="always", destructive=True)
        def refund(order: str, cents: int) -> str:
            return "paid"

        catalog.profile(Profile(name="default", include=("core",)))
        catalog.profile(Profile(name="strict", include=("core",), policy=Policy(deny=("write_*",))))
    return catalog


@pytest.mark.parametrize("count", [0, 30, 5_000])
async def test_no_page_has_a_fault_in_light_and_dark_on_any_screen(tmp_path: Path, count: int) -> None:
    app = app_of(shop(tmp_path, count), AppOptions(console=True, login_token="once"))
    pages = [["board", ""], ["consents", "/consents"], ["tasks", "/tasks"], ["live", "/live"], ["matrix", "/matrix"],
             ["sources", "/sources"], ["audit", "/audit"], ["find", "/find"],
             ["compare", "/compare?b_user=ann"]]  # fmt: skip
    async with listening(app, starts=app) as url:
        if count:
            async with httpx2.AsyncClient(base_url=url) as client:
                await client.post("/v1/tools/refund/call", json={"order": MARKUP, "cents": 5})
                await client.post("/v1/tools/report/call?as_task=true", json={})
            pages += [["search", "?q=orders"], ["tool", "/tools/hostile"], ["hidden", "/tools/read_orders_0"],
                      ["tried", "/tools/hostile", ".try button.main"],
                      ["eyes", f"?user={ENDLESS}&role=editor&q=orders{ENDLESS}"], ["found", "/find?find=orders"],
                      ["differ", "/compare?profile=default&b_profile=strict"]]  # fmt: skip
        told = await walked(
            base=f"{url}/console", link="once", pages=pages, pictures=pictures(str(count)),
            # With thousands of tools, axe would spend minutes on elements that are copies of the first ones.
            copies=".rail:nth-child(n+6), tbody tr:nth-child(n+40)" if count > MANY else "",
        )  # fmt: skip
    assert told["faults"] == []
    assert {name for name, length in told["texts"].items() if length < 20} == set()
    assert told["pressed"] == {"search": "q", "peg": count > 0, "help": True, "palette": "Two callers side by side"}
    assert told["drawn"]["pegs"] == count
    assert told["drawn"]["ms"] <= DRAWN_MS
