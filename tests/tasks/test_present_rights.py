"""A task runs with the rights that its credential has now: what was taken away meanwhile ends it at its next step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pegboard import CallContext, CallError, Catalog, Profile, Tasks, ToolContext, http_app
from pegboard.auth.keys import KeyStore
from pegboard.auth.rules import AnonymousRule, IdentityRules, MapRule
from pegboard.model.record import replace
from pegboard.tasks.tasks import OPERATOR
from tests.auth.parts import Issuer, bearer, rule
from tests.server.doors import inside
from tests.timing import PATIENCE_S


class Importing:
    """A catalog whose import waits between its two steps, for those who may import."""

    def __init__(self, store: str, rules: IdentityRules) -> None:
        self.ran, self.is_open = list[str](), False
        self.begins, self.goes_on = asyncio.Semaphore(0), asyncio.Event()
        self.catalog = catalog = Catalog("importing", tasks=Tasks(store))
        catalog.identity = rules

        @catalog.predicate(name="may_import")
        def may_import(ctx: ToolContext) -> bool:
            return self.is_open or "importer" in ctx.roles

        @catalog.tool(task="required", available="may_import", groups=["work"])
        async def load(ctx: CallContext) -> str:
            """Load in two steps."""
            await ctx.step("first", self.first)
            try:
                await ctx.step("second", self.second)
            except CallError:
                # A tool may do what it likes with a refusal.
                await ctx.step("third", self.second)
            return "loaded"

        catalog.profile(Profile(name="chat", include=("work",)))
        catalog.profile(Profile(name="other", include=("work",)))

    async def first(self) -> str:
        self.ran.append("first")
        self.begins.release()
        await self.goes_on.wait()
        return "1"

    async def second(self) -> str:
        self.ran.append("second")
        return "2"

    @asynccontextmanager
    async def begun(self, *credentials: str | None) -> AsyncGenerator[list[str]]:
        """Begin the import over HTTP for each credential, and give the ids of the tasks, all in their first step."""
        async with inside(http_app(self.catalog)) as client:
            made = list[str]()
            for credential in credentials:
                headers = {} if credential is None else bearer(credential)
                answer = await client.post("/v1/tools/load/call", json={}, headers=headers)
                assert answer.status_code == 200, answer.text
                async with asyncio.timeout(PATIENCE_S):
                    await self.begins.acquire()
                made.append(answer.json()["taskId"])
            yield made

    async def ended(self, task_id: str) -> tuple[str, str | None, list[str]]:
        """Let the first step go on, and return how the task ended, and which steps ran."""
        self.goes_on.set()
        record = await self.catalog.tasks.ended(task_id, OPERATOR, timeout_s=PATIENCE_S)
        return record.state, record.error and record.error.kind, self.ran


IMPORTER = rule(key="ann", user="ann", roles=("reader", "importer"), profiles=("chat", "other"))
GONE, WENT_ON = ("failed", "not_found", ["first"]), ("completed", None, ["first", "second"])


@pytest.fixture
def keys(tmp_path: Path) -> KeyStore:
    return KeyStore(tmp_path / "keys.db")


def taken_away(keys: KeyStore, rules: IdentityRules, change: str) -> IdentityRules:
    if change in ("key revoked", "key revoked and made anew"):
        keys.revoke("ann")
    if change == "key revoked and made anew":
        keys.add("ann")
    if change == "key rotated":
        keys.rotate("ann", overlap_s=0)
    changed: dict[str, MapRule | None] = {
        "role": replace(IMPORTER, roles=rule(roles=("reader",)).roles),
        "another role": replace(IMPORTER, roles=rule(roles=("importer",)).roles),
        "role added": replace(IMPORTER, roles=rule(roles=("reader", "importer", "boss")).roles),
        "profile": replace(IMPORTER, profiles=rule(profiles=("other",)).profiles),
        "user": replace(IMPORTER, user=rule(user="bob").user),
        "space": replace(IMPORTER, space=rule(space="s2").space),
        "rule": None,
    }
    if change == "identity":
        return IdentityRules(anonymous=AnonymousRule(profiles=("chat",)))
    if change in changed:
        found = changed[change]
        return replace(rules, map=() if found is None else (found,))
    return rules


@pytest.mark.parametrize(
    ("change", "ends"),
    [
        ("nothing", WENT_ON), ("key rotated", WENT_ON), ("role added", WENT_ON),
        ("key revoked", GONE), ("key revoked and made anew", GONE), ("role", GONE), ("another role", GONE),
        ("profile", GONE), ("user", GONE), ("space", GONE), ("rule", GONE), ("identity", GONE),
    ],
)  # fmt: skip
async def test_what_is_taken_from_a_key_ends_its_tasks_before_their_next_step(
    keys: KeyStore, change: str, ends: tuple[object, ...]
) -> None:
    key, _ = keys.add("ann")
    rules = IdentityRules(key_store=keys.path, map=(IMPORTER,))
    importing = Importing("memory", rules)
    async with importing.begun(key) as [task_id]:
        importing.catalog.identity = taken_away(keys, rules, change)
        assert await importing.ended(task_id) == ends


async def test_a_store_of_keys_that_is_away_makes_the_task_wait_and_not_fail(
    keys: KeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, _ = keys.add("ann")
    importing = Importing("memory", IdentityRules(key_store=keys.path, map=(IMPORTER,)))
    whole = keys.path.read_bytes()
    monkeypatch.setattr("pegboard.tasks.tasks.TASK_LOOK_S", 0.01)
    async with importing.begun(key) as [task_id]:
        keys.path.write_bytes(b"no database")
        importing.goes_on.set()
        with pytest.raises(CallError, match="still runs after"):
            await importing.catalog.tasks.ended(task_id, OPERATOR, timeout_s=0.1)
        keys.path.write_bytes(whole)
        assert await importing.ended(task_id) == WENT_ON


TEAM = rule(claim={"team": "loaders"}, user="{sub}", roles=("importer",), profiles=("chat",))
BARRED = rule(claim={"barred": True}, user="{sub}", profiles=("chat",))


@pytest.mark.parametrize(
    ("change", "ends"),
    [
        ({}, WENT_ON),
        ({"map": (rule(claim={"team": "others"}, user="{sub}", roles=("importer",), profiles=("chat",)),)}, GONE),
        # What was not kept of the token may be what this rule is about.
        ({"map": (BARRED, TEAM)}, GONE),
        ({"tokens": None}, GONE),
        ({"issuer": "https://login.example.org"}, GONE),
        ({"scopes": ("load",)}, WENT_ON),
        ({"scopes": ("load", "drop")}, GONE),
    ],
)
async def test_what_a_token_said_is_judged_by_the_rules_of_now(
    change: dict[str, Any], ends: tuple[object, ...]
) -> None:
    async with Issuer().running() as issuer:
        rules = IdentityRules(tokens=issuer.rules(), map=(TEAM,))
        importing = Importing("memory", rules)
        async with importing.begun(issuer.token(team="loaders", scope="load", barred=True)) as [task_id]:
            tokens = {name: change.pop(name) for name in ("issuer", "scopes") if name in change}
            assert rules.tokens is not None
            importing.catalog.identity = replace(rules, **{"tokens": replace(rules.tokens, **tokens), **change})
            assert await importing.ended(task_id) == ends


async def test_a_task_of_nobody_goes_on_as_long_as_nobody_may_come_in() -> None:
    for rules, ends in (
        (IdentityRules(anonymous=AnonymousRule(profiles=("chat",))), WENT_ON),
        (IdentityRules(anonymous=AnonymousRule(profiles=("other",))), GONE),
        (IdentityRules(), GONE),
    ):
        importing = Importing("memory", IdentityRules(anonymous=AnonymousRule(profiles=("chat",))))
        importing.is_open = True
        async with importing.begun(None) as [task_id]:
            importing.catalog.identity = rules
            assert await importing.ended(task_id) == ends


async def test_rights_are_asked_for_again_when_another_process_goes_on_and_nothing_is_kept_that_they_do_not_need(
    tmp_path: Path, keys: KeyStore
) -> None:
    key, _ = keys.add("ann")
    async with Issuer().running() as issuer:
        rules = IdentityRules(key_store=keys.path, tokens=issuer.rules(), map=(IMPORTER, TEAM))
        first = Importing(f"sqlite:{tmp_path}/tasks.db", rules)
        token = issuer.token(team="loaders", email="ann@example.com")
        async with first.begun(key, token) as (of_key, of_token):
            pass
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("tasks.db*") if path.is_file())
    assert b"loaders" in kept
    assert not any(part.encode() in kept for part in (key, "ann@example.com", *token.split(".")))
    second = Importing(f"sqlite:{tmp_path}/tasks.db", replace(rules, map=(TEAM,)))
    await second.catalog.tasks.wake()
    assert await second.ended(of_key) == ("failed", "not_found", second.ran)
    assert await second.ended(of_token) == WENT_ON
    await second.catalog.close()
