"""The breaker for repeated failures, over both doors: a call that keeps failing is stopped before it runs."""

from pathlib import Path

from pegboard import CallError, http_app
from pegboard.auth.rules import IdentityRules
from tests.auth.parts import bearer, guarded, rule
from tests.server.doors import call, inside

FAILURES = 5


async def test_a_call_that_fails_again_and_again_is_refused_for_its_caller_alone(tmp_path: Path) -> None:
    catalog, _, store, keys = guarded(tmp_path)
    runs: list[str] = []

    @catalog.tool(groups="core")
    async def fetch(place: str) -> str:
        """Fetch something."""
        runs.append(place)
        raise CallError("tool_error", "There is no such place.")

    rules = [rule(key=name, user=name, profiles=("admin",)) for name in ("ann-laptop", "bob-phone")]
    catalog.identity = IdentityRules(key_store=store.path, map=tuple(rules))
    ann, bob = bearer(keys["ann-laptop"]), bearer(keys["bob-phone"])
    async with inside(http_app(catalog)) as client:
        for _ in range(FAILURES):
            answer = await call(client, "fetch", {"place": "here"}, headers=ann)
            assert answer["result"]["isError"] is True
        refused = await call(client, "fetch", {"place": "here"}, headers=ann)
        assert "was not run: with these very arguments it failed 5 times in a row" in str(refused)
        over_http = await client.post("/v1/tools/fetch/call", json={"place": "here"}, headers=ann)
        assert over_http.status_code == 429
        assert 0 < int(over_http.headers["retry-after"]) <= 60
        assert runs == ["here"] * FAILURES
        # Other arguments, and the same ones by another caller, run.
        await call(client, "fetch", {"place": "there"}, headers=ann)
        await call(client, "fetch", {"place": "here"}, headers=bob)
    assert runs[FAILURES:] == ["there", "here"]
