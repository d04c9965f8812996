"""The page for consents in a real browser: what is hostile in a question stays text, and no other page decides."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pegboard import Catalog, http_app
from pegboard.auth.keys import KeyStore
from pegboard.auth.rules import IdentityRules
from pegboard.consent.sqlite_store import SqliteConsents
from pegboard.server.identify import Identified
from tests.auth.parts import bearer, rule
from tests.e2e.test_real_clients import CLIENTS
from tests.server.doors import served
from tests.timing import PATIENCE_S

pytestmark = pytest.mark.e2e
HOSTILE = (
    "</pre><script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'><svg onload='window.pwned = 3'>"
    "<a href='javascript:window.pwned = 4'>\u202e\x1b[2J\u2028{{7*7}}<iframe src=//x.test></iframe>`${pwned = 5}`"
)
BEYOND_JAVASCRIPT = 2**53 + 1  # A number of JavaScript cannot hold it, and a call runs with it.


async def browsed(**told: str) -> dict[str, Any]:
    """Return what a browser saw; see `consent_page.mjs`."""
    pipe = asyncio.subprocess.PIPE
    words = ("node", "consent_page.mjs", json.dumps(told), "decide")
    process = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=pipe, cwd=CLIENTS)
    said, errors = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode == 0, errors.decode()
    return json.loads(said)


def shop(folder: Path, paid: list[str]) -> Catalog:
    catalog = Catalog("shop", consent_store=SqliteConsents(folder / "consents.db"))

    @catalog.tool(consent="always", description=HOSTILE)
    async def pay(to: str, note: dict[str, str], amount: int) -> str:
        paid.append(to)
        return "paid"

    return catalog


async def filed(url: str, heads: dict[str, str]) -> str:
    arguments = {"to": HOSTILE, "note": {HOSTILE: HOSTILE}, "amount": BEYOND_JAVASCRIPT}
    async with httpx2.AsyncClient(headers=heads, timeout=PATIENCE_S) as client:
        answer = await client.post(f"{url}/v1/tools/pay/call", json=arguments)
    if answer.status_code == 403:
        return answer.json()["details"]["consent_id"]
    assert answer.status_code == 200, answer.text
    return ""


def assert_hostile_text_stays_text(told: dict[str, Any]) -> None:
    shown = told["byPerson"]
    assert (shown["said"], shown["isShown"], shown["mayDecide"]) == ("State: asked", True, True)
    assert "<script>window.pwned = 1</script>" in shown["arguments"]
    assert "\u202e" not in shown["arguments"] + shown["question"]
    assert f'"amount": {BEYOND_JAVASCRIPT}' in shown["arguments"]
    # The only script is the page's own.
    assert (shown["elements"], shown["pwned"]) == (1, "undefined")
    assert (told["seen"]["dialogs"], told["seen"]["foreign"]) == ([], [])


async def test_a_person_reads_a_hostile_question_with_a_key_and_approves_it_once(tmp_path: Path) -> None:
    keys, paid = KeyStore(tmp_path / "keys.db"), list[str]()
    made = {name: keys.add(name)[0] for name in ("agent", "person")}
    catalog = shop(tmp_path, paid)
    catalog.identity = IdentityRules(
        key_store=keys.path,
        map=(rule(key="agent", user=HOSTILE[:20]), rule(key="person", user="ann", roles=("approver",))),
    )
    async with served(http_app(catalog)) as url:
        consent = await filed(url, bearer(made["agent"]))
        told = await browsed(
            page=url, consent=consent, approver=made["person"], agent=made["agent"], cookie=made["person"]
        )
        assert_hostile_text_stays_text(told)
        refused = told["byAgent"]
        assert (refused["isShown"], refused["mayDecide"], refused["question"]) == (False, False, "")
        assert consent in refused["said"]
        assert told["framed"] == [False]
        assert told["decided"] == {"said": "State: agreed", "mayDecide": False}
        assert paid == []
        assert await filed(url, bearer(made["agent"])) == ""
        assert await filed(url, bearer(made["agent"])) not in ("", consent)
    assert paid == [HOSTILE]


async def test_no_other_page_decides_with_the_login_of_a_person(tmp_path: Path) -> None:
    paid = list[str]()
    people = {"agent": Identified(user="bot"), "boss": Identified(user="boss", roles=("approver",))}

    def who(request: Any) -> Identified | None:
        key = request.headers.get("authorization", "").removeprefix("Bearer ")
        return people.get(request.cookies.get("who", "") or key)

    async with served(http_app(shop(tmp_path, paid), identify=who)) as url:
        consent = await filed(url, bearer("agent"))
        told = await browsed(page=url, consent=consent, approver="boss", agent="agent", cookie="boss")
        assert told["byCookie"]["mayDecide"] is True
        # What was answered stays unread, and nothing was decided.
        assert told["raids"] == ["TypeError", "opaque 0 0", "opaque 0 0", "TypeError"]
        assert "agreed" not in told["afterForm"]
        assert_hostile_text_stays_text(told)
        assert told["byPerson"]["mayDecide"] is True
        assert told["decided"]["said"] == "State: agreed"
    assert paid == []
