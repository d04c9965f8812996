"""For operators: health, readiness and metrics, and who may see them."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from pegboard import Catalog, Profile, http_app
from pegboard.auth.keys import KeyStore
from pegboard.config import load_catalog
from pegboard.model.error import Problem
from pegboard.model.probe import Part
from pegboard.model.source_state import SourceState
from pegboard.telemetry.part_states import PROBE_KEPT_S, PartStates
from tests.core.parts import FakeSource, foreign
from tests.server.doors import call, inside, served, workshop
from tests.server.http_callers import context_of_user, known_callers

LABELS = ("tool", "source", "store", "server", "outcome", "status", "le")


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Return what Prometheus would read: (name, label values …) -> value."""
    return {
        (sample.name, *(sample.labels[name] for name in LABELS if name in sample.labels)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_metrics_count_every_call_by_tool_and_outcome_whatever_the_door() -> None:
    catalog, _ = workshop()
    async with inside(http_app(catalog)) as client:
        await client.post("/v1/tools/add/call", json={"a": 1, "b": 2})
        await call(client, "add", {"a": 1, "b": 2})
        await call(client, "add", {"a": "1"})
        await client.post("/v1/tools/broken/call")
        for name in ("nobody", "nothing", "none"):
            await client.post(f"/v1/tools/{name}/call")
        answer = await client.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        told = samples(answer.text)
        assert told["pegboard_calls_total", "add", "ok"] == 2
        assert told["pegboard_calls_total", "add", "invalid_arguments"] == 1
        assert told["pegboard_calls_total", "broken", "tool_error"] == 1
        assert told["pegboard_calls_total", "(unknown)", "not_found"] == 3
        assert told["pegboard_call_duration_seconds_count", "add"] == 3
        assert told["pegboard_call_duration_seconds_bucket", "add", "+Inf"] == 3
        assert 0 < told["pegboard_call_duration_seconds_sum", "add"] < 60
        assert told[("pegboard_calls_in_flight",)] == 0
        assert told[("process_resident_memory_bytes",)] > 0
        assert "nobody" not in answer.text


async def test_two_apps_of_one_catalog_count_each_call_once_and_building_them_changes_nothing_in_it() -> None:
    catalog, _ = workshop()
    before = catalog.executor.ports.call_observers, catalog.snapshot().generation
    first, second = http_app(catalog), http_app(catalog)
    assert (catalog.executor.ports.call_observers, catalog.snapshot().generation) == before
    async with inside(first) as client, inside(second) as other:
        await call(client, "add", {"a": 1, "b": 2})
        for one in (client, other):
            assert samples((await one.get("/metrics")).text)["pegboard_calls_total", "add", "ok"] == 1
    assert catalog.executor.ports.call_observers == ()


async def test_metrics_tell_what_runs_now_and_how_sources_are() -> None:
    catalog, seen = workshop()
    held = frozenset({"jira.new", "jira.changed"})
    down = SourceState(
        status="unreachable", is_up=False, reason="canary", quarantined=held, changed=frozenset(["jira.x"])
    )
    catalog.add_source(FakeSource(name="git", listed=[foreign("git", "read")]))
    catalog.add_source(FakeSource(name="jira", now=down))
    async with served(http_app(catalog)) as url, httpx2.AsyncClient(base_url=url) as client:
        calling = asyncio.create_task(client.post("/v1/tools/wait/call"))
        async with client.stream("GET", "/v1/events"):
            async with asyncio.timeout(60):
                await seen.began.wait()
            answer = await client.get("/metrics")
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
    told = samples(answer.text)
    assert told[("pegboard_calls_in_flight",)] == 1
    assert told[("pegboard_event_streams",)] == 1
    assert (told["pegboard_source_up", "git"], told["pegboard_source_up", "jira"]) == (1, 0)
    assert told["pegboard_source_status", "jira", "unreachable"] == 1
    assert (told["pegboard_tools_held", "git"], told["pegboard_tools_held", "jira"]) == (0, 3)
    assert (told[("pegboard_workers_heard",)], told[("pegboard_metrics_partial",)]) == (1, 0)
    assert "canary" not in answer.text


async def test_only_operators_and_this_machine_see_metrics() -> None:
    app = http_app(workshop()[0], config=context_of_user, allowed_hosts=["127.0.0.1", "tools.example.com"])
    async with served(known_callers(app)) as url, httpx2.AsyncClient(base_url=url) as client:
        # As a proxy on this machine passes on what comes from elsewhere.
        elsewhere: list[Any] = [{"host": "tools.example.com"}, {"x-forwarded-for": "203.0.113.7"}]
        for heads in elsewhere:
            assert (await client.get("/metrics", headers=heads)).status_code == 404
            assert (await client.get("/metrics", headers={**heads, "x-user": "ann"})).status_code == 404
            assert (await client.get("/metrics", headers={**heads, "x-user": "operator"})).status_code == 200
        assert (await client.get("/metrics")).status_code == 200
        assert (await client.get("/metrics", headers={"host": "evil.example"})).status_code == 421
        assert (await client.get("/metrics", headers={"origin": "http://evil.example"})).status_code == 403


async def test_health_tells_of_a_refused_config_and_where_it_is_wrong_to_those_who_may_know() -> None:
    problems: list[Problem] = []
    app = http_app(workshop()[0], allowed_hosts=["127.0.0.1", "tools.example.com"], problems=lambda: problems)
    async with served(app) as url, httpx2.AsyncClient(base_url=url) as client:
        assert (await client.get("/healthz")).text == "ok"
        assert samples((await client.get("/metrics")).text)[("pegboard_config_refused",)] == 0
        problems.append(Problem(where="pegboard.yaml:3:1", message="canary"))
        told = await client.get("/healthz")
        assert told.status_code == 200
        assert "refused (1 problem" in told.text
        assert "pegboard.yaml:3:1: canary" in told.text
        outside = await client.get("/healthz", headers={"host": "tools.example.com"})
        assert "refused" in outside.text
        assert "canary" not in outside.text
        assert samples((await client.get("/metrics")).text)[("pegboard_config_refused",)] == 1


async def test_a_tool_that_a_builder_makes_is_counted_under_its_name() -> None:
    catalog = Catalog()

    @catalog.builder("made")
    def build(ctx: Any) -> Any:
        async def made() -> str:
            """Made for each context."""
            return "x"

        return made

    catalog.profile(Profile(name="chat", include=("core",)))
    async with inside(http_app(catalog)) as client:
        assert (await client.post("/v1/tools/made/call")).status_code == 200
        assert samples((await client.get("/metrics")).text)["pegboard_calls_total", "made", "ok"] == 1


async def test_a_server_is_not_ready_while_calls_would_fail_and_operators_see_which_part_is_away(
    tmp_path: Path,
) -> None:
    file = tmp_path / "pegboard.yaml"
    config = """\
consents: {store: "sqlite:consents.db"}
profiles: {chat: {include: [core]}}
identity: {api_keys: {store: "sqlite:keys.db"}, map: [{when: {key: "*"}, profiles: [chat]}], anonymous: {profile: chat}}
"""
    file.write_text(config)
    KeyStore(tmp_path / "keys.db").add("ann")
    (tmp_path / "consents.db").mkdir(mode=0o700)
    catalog, loaded = load_catalog(file, env={})
    async with inside(http_app(catalog, config=loaded, allowed_hosts=["127.0.0.1", "tools.example.com"])) as client:
        assert (await client.get("/readyz")).text == "ready"
        told = samples((await client.get("/metrics")).text)
        assert {name[1]: value for name, value in told.items() if name[0] == "pegboard_store_up"} == {
            "api_keys": 1, "consents": 0,
        }  # fmt: skip
    (tmp_path / "keys.db").unlink()
    (tmp_path / "keys.db").mkdir(mode=0o700)
    catalog, loaded = load_catalog(file, env={})
    async with inside(http_app(catalog, config=loaded, allowed_hosts=["127.0.0.1", "tools.example.com"])) as client:
        answer = await client.get("/readyz")
        assert (answer.status_code, answer.text.partition(":")[0]) == (503, "not ready\nstore api_keys")
        outside = await client.get("/readyz", headers={"host": "tools.example.com"})
        assert (outside.status_code, outside.text) == (503, "not ready")


async def test_without_a_store_of_keys_a_server_is_ready_only_for_callers_who_need_no_key(tmp_path: Path) -> None:
    file = tmp_path / "pegboard.yaml"
    keys = """\
profiles: {chat: {include: [core]}}
identity: {api_keys: {store: "sqlite:keys.db"}, map: [{when: {key: "*"}, profiles: [chat]}]%s}
"""
    ready: list[str] = []
    for anonymous in (", anonymous: {profile: chat}", ""):
        file.write_text(keys % anonymous)
        catalog, loaded = load_catalog(file, env={})
        async with inside(http_app(catalog, config=loaded, allowed_hosts=["127.0.0.1"])) as client:
            ready.append((await client.get("/readyz")).text.partition(":")[0])
            if anonymous:
                assert samples((await client.get("/metrics")).text)["pegboard_store_up", "api_keys"] == 0
    assert ready == ["ready", "not ready"]


async def test_a_part_is_probed_once_in_two_seconds_however_many_ask() -> None:
    asked, now = list[str](), [0.0]

    async def check() -> None:
        asked.append("check")
        await asyncio.sleep(0)
        raise ConnectionError("it is away")

    part = Part(kind="store", name="limits", where="", check=check, is_required=True)
    states = PartStates(lambda: [part], clock=lambda: now[0])
    for _ in range(2):
        first, second = await asyncio.gather(states.probes(), states.probes(only_required=True))
        assert first == second
        assert first["store", "limits"].detail == "it is away"
    assert len(asked) == 1
    now[0] = PROBE_KEPT_S
    await states.probes()
    assert len(asked) == 2


async def test_a_part_that_hangs_has_its_previous_state_at_once_and_the_new_one_after_its_probe() -> None:
    now, may_answer, is_asked_again = [0.0], asyncio.Event(), asyncio.Event()
    may_answer.set()

    async def check() -> None:
        await may_answer.wait()
        if is_asked_again.is_set():
            raise ConnectionError("it is away")

    part = Part(kind="store", name="limits", where="", check=check)
    states = PartStates(lambda: [part], clock=lambda: now[0])
    assert [probe.ok for probe in (await states.probes(at_most_s=0.0)).values()] == [True]
    now[0] = PROBE_KEPT_S
    may_answer.clear()
    is_asked_again.set()
    assert [probe.ok for probe in (await states.probes(at_most_s=0.0)).values()] == [True]
    may_answer.set()
    assert [probe.detail for probe in (await states.probes()).values()] == ["it is away"]
