"""What waits for a decision: who sees which question, and what each answer lets through."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pegboard import Catalog
from pegboard.auth.keys import KeyStore
from pegboard.auth.rules import IdentityRules
from pegboard.consent.sqlite_store import SqliteConsents
from pegboard.model.record import replace
from tests.auth.parts import bearer, rule
from tests.server.console.browsing import Browser, console, text_of

ARGUMENTS = {"order": "ann-1", "cents": 500}


class Bank:
    """A bot asks; ann and bob decide, each in a space of their own; olga operates and does not decide."""

    def __init__(self, folder: Path) -> None:
        keys = KeyStore(folder / "keys.db")
        self.key = {name: keys.add(name)[0] for name in ("bot", "ann", "bob", "olga")}
        self.paid: list[dict[str, Any]] = []
        self.noted: list[tuple[str, dict[str, Any], str]] = []
        self.catalog = catalog = Catalog("bank", consent_store=SqliteConsents(folder / "consents.db"))

        @catalog.tool(consent="always", destructive=True)
        def refund(order: str, cents: int, reason: str = "other") -> str:
            """Pay an order back."""
            self.paid.append({"order": order, "cents": cents, "reason": reason})
            return "paid"

        catalog.identity = IdentityRules(
            key_store=keys.path,
            map=(
                rule(key="bot", user="bot", space="s1"),
                rule(key="ann", user="ann", space="s1", roles=("approver",)),
                rule(key="bob", user="bob", space="s2", roles=("approver",)),
                rule(key="olga", user="olga", roles=("operator",)),
            ),
        )
        catalog.executor.swap(replace(catalog.executor.ports, audit=self))

    # An audit that keeps what it is told.
    is_up, times_stages = True, False

    def note(self, event: Any, detail: Any, *, by: str = "") -> None:
        self.noted.append((event, dict(detail), by))

    async def close(self) -> None:
        pass

    async def ask(self, browser: Browser, **arguments: Any) -> int:
        """Let the bot call; returns the status."""
        sent = {**ARGUMENTS, **arguments}
        answer = await browser.client.post("/v1/tools/refund/call", json=sent, headers=bearer(self.key["bot"]))
        return answer.status_code


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return Bank(tmp_path)


def question_of(page: str) -> str:
    """Return the path of the first question on a page."""
    [path, *_] = re.findall(r'action="/console(/consents/[0-9a-f]+)/approve', page)
    return path


async def test_an_approved_call_passes_once_and_the_audit_has_the_name(bank: Bank) -> None:
    async with console(bank.catalog) as browser:
        assert await bank.ask(browser) == 403
        await browser.log_in(bank.key["ann"])
        page = text_of((await browser.get("/consents")).text)
        for part in ("destructive", "by bot in space s1", '"cents": 500', '"order": "ann-1"'):
            assert part in page
        done = await browser.post(f"{question_of(browser.page)}/approve")
        assert (done.status_code, done.headers["location"]) == (303, "/console/consents?done=approved")
        assert "Approved: the same call passes once" in (await browser.get("/consents?done=approved")).text
        assert [await bank.ask(browser, cents=501), await bank.ask(browser), await bank.ask(browser)] == [403, 200, 403]
        assert bank.paid == [{**ARGUMENTS, "reason": "other"}]
        [(event, detail, by)] = bank.noted
        assert (event, detail["tool"], detail["state"], detail["user"]) == (
            "consent_decided", "main.refund", "agreed", "ann",
        )  # fmt: skip
        assert len(by) == 64


async def test_a_declined_call_stays_refused(bank: Bank) -> None:
    async with console(bank.catalog) as browser:
        await bank.ask(browser)
        await browser.log_in(bank.key["ann"])
        await browser.get("/consents")
        await browser.post(f"{question_of(browser.page)}/decline")
        assert "Nothing waits for you" in (await browser.get("/consents")).text
        assert (await bank.ask(browser), bank.paid) == (403, [])


async def test_a_grant_is_given_as_it_was_read_and_can_be_revoked(bank: Bank) -> None:
    async with console(bank.catalog) as browser:
        await bank.ask(browser)
        await browser.log_in(bank.key["ann"])
        await browser.get("/consents")
        path = question_of(browser.page)
        bounds = {"calls": "2", "hours": "1", "kind:order": "any", "kind:cents": "value", "value:cents": "700",
                  "kind:reason": "out", "value:reason": ""}  # fmt: skip
        await browser.get(path)
        preview = await browser.post(f"{path}/grant", **bounds)
        assert "Allow up to 2 calls" in text_of(preview.text)
        assert "OPEN: any value of 'order'" in text_of(preview.text)
        assert bank.noted == []
        read = re.findall(r'name="read" value="([0-9a-f]+)"', preview.text)[0]
        # Wider bounds than those that were read are shown again first.
        assert "Allow up to 9 calls" in text_of(
            (await browser.post(f"{path}/grant", **{**bounds, "calls": "9"}, read=read)).text
        )
        assert (await browser.post(f"{path}/grant", **bounds, read=read)).status_code == 303
        assert bank.noted[0][0] == "grant_given"
        statuses = [await bank.ask(browser, order=order, cents=cents) for order, cents in
                    (("x", 700), ("y", 701), ("z", 700), ("z", 700))]  # fmt: skip
        assert statuses == [200, 403, 200, 403]
        page = await browser.get("/consents")
        revoke = re.findall(r'action="/console(/consents/[0-9a-f]+/revoke)"', page.text)[0]
        assert (await browser.post(revoke)).status_code == 303


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"calls": "0"}, "calls must be more than 0"),
        ({"calls": "many"}, "calls is a number"),
        ({"hours": "99999"}, "at most 31 days"),
        ({"kind:cents": "value", "value:cents": "x"}, "is not JSON"),
        ({"kind:cents": "all"}, "choose one of the values"),
        ({"kind:cents": "out"}, "No call could use this grant"),
    ],
)
async def test_a_grant_that_cannot_be_given_says_why(bank: Bank, fields: dict[str, str], said: str) -> None:
    async with console(bank.catalog) as browser:
        await bank.ask(browser)
        await browser.log_in(bank.key["ann"])
        await browser.get("/consents")
        path = question_of(browser.page)
        usual = {"calls": "2", "hours": "1", "kind:order": "same", "kind:cents": "same", "kind:reason": "out"}
        answer = await browser.post(f"{path}/grant", **{**usual, **fields})
        assert answer.status_code == 409
        assert said in text_of(answer.text)


async def test_nobody_decides_for_another_space_and_an_operator_sees_no_arguments(bank: Bank) -> None:
    async with console(bank.catalog) as browser:
        await bank.ask(browser)
        await browser.log_in(bank.key["ann"])
        await browser.get("/consents")
        path = question_of(browser.page)
        await browser.post("/logout")
        for name in ("bob", "bot", "olga"):
            await browser.log_in(bank.key[name])
            page = await browser.get("/consents")
            assert "ann-1" not in page.text
            assert ("Waits for others" in page.text) is (name == "olga")
            assert (await browser.get(path)).status_code == 404
            await browser.get("/consents")
            for action in ("approve", "decline", "grant", "revoke"):
                answer = await browser.post(f"{path}/{action}", calls="1", hours="1")
                assert answer.status_code == 404
                assert "ann-1" not in answer.text
            await browser.post("/logout")
        assert (bank.noted, await bank.ask(browser)) == ([], 403)


async def test_a_question_that_was_decided_meanwhile_says_so(bank: Bank) -> None:
    async with console(bank.catalog) as browser:
        await bank.ask(browser)
        await browser.log_in(bank.key["ann"])
        await browser.get("/consents")
        path = question_of(browser.page)
        await browser.post(f"{path}/decline")
        await browser.get("")
        assert (await browser.post(f"{path}/approve")).status_code == 409


async def test_without_an_inbox_the_page_says_what_to_write() -> None:
    async with console(Catalog("bare")) as browser:
        await browser.log_in()
        assert "consents: store:" in text_of((await browser.get("/consents")).text)


async def test_the_person_at_the_terminal_decides_what_anonymous_callers_asked(tmp_path: Path) -> None:
    catalog = Catalog("open", consent_store=SqliteConsents(tmp_path / "consents.db"))
    catalog.tool(name="wipe", consent="always")(lambda: "wiped")
    async with console(catalog) as browser:
        assert (await browser.client.post("/v1/tools/wipe/call", json={})).status_code == 403
        await browser.log_in()
        page = await browser.get("/consents")
        assert "by an anonymous caller" in text_of(page.text)
        await browser.post(f"{question_of(page.text)}/approve")
        assert (await browser.client.post("/v1/tools/wipe/call", json={})).status_code == 200
