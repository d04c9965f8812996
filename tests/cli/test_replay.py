"""`pegboard replay`: recorded calls judged under another config; nothing is run."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from pegboard.agents.access import caller_of
from pegboard.config import context_for, load_catalog
from tests.agents.team import playing
from tests.cli.conftest import CONFIG, Run

CANARY = "canary-0d9f35c1b86e4a72"
RECORDED = (
    CONFIG.replace("settings: {web: false}", 'settings: {web: false, key: "${TOKEN}"}').replace(
        "max_calls: 10, window_seconds: 60", "max_calls: 70, window_seconds: 3600"
    )
    + "limits: {invalid_calls_per_minute: 100000}\n"
)
TOOLS = ("count_words", "count_words", "echo", "echo", "delete_page", "search_web", "shout", "nothing")
ARGUMENTS: dict[str, Any] = {
    "count_words": {"text": "some words"}, "echo": {"whole": 1}, "delete_page": {"page": "p1"},
}  # fmt: skip


def recorded(path: Path, calls: int, *, make: Callable[[int], tuple[str, str, str, Any]] | None = None) -> None:
    """Make calls as several callers of a config, whose audit records them."""
    catalog, config = load_catalog(path)
    draw = random.Random(7)

    def usual(number: int) -> tuple[str, str, str, Any]:
        tool = draw.choice(TOOLS)
        args = {"text": 1} if number % 97 == 0 else ARGUMENTS.get(tool, {})
        return draw.choice(("ann", "bob", "cy")), draw.choice(("chat", "operator")), tool, args

    async def run() -> None:
        await catalog.start()
        for number in range(calls):
            user, profile, tool, args = (make or usual)(number)
            await catalog.view(context_for(config, user=user), profile=profile).call(tool, args)
        await catalog.close()

    asyncio.run(run())


def replayed(run: Run, *words: str) -> tuple[int, Any]:
    ran = run("replay", *words, "--json")
    assert CANARY not in ran.out + ran.err
    assert ran.out.startswith("{"), ran.err
    return ran.code, orjson.loads(ran.out)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("TOKEN", CANARY)
    return tmp_path


@pytest.mark.parametrize(
    ("bodies", "calls"),
    [("none", 1_000), ("redacted", 2_000), pytest.param("redacted", 10_000, marks=pytest.mark.soak)],
)
def test_many_calls_change_nothing_under_the_same_config_and_are_named_under_a_stricter_one(
    run: Run, folder: Path, bodies: str, calls: int
) -> None:
    path = folder / "pegboard.yaml"
    path.write_text(RECORDED + f"audit: {{store: 'sqlite:./audit.db', bodies: {bodies}}}\n")
    recorded(path, calls)
    code, same = replayed(run)
    assert (code, same["calls"], same["changes"]) == (0, calls, [])
    strict = RECORDED.replace('deny: ["search_*"]', 'deny: ["search_*", "ech*"]').replace(
        "max_calls: 70", "max_calls: 50"
    )
    (folder / "strict.yaml").write_text(strict.replace("whole: {type: integer}", "whole: {type: integer, minimum: 5}"))
    rows = [orjson.loads(line) for line in run("audit", "export").out.splitlines()]
    echoed = {row["call_id"]: row["profile"] for row in rows if row["name"] == "echo" and row["outcome"] == "ok"}
    code, answer = replayed(run, "--from", "pegboard.yaml", "--config", "strict.yaml")
    assert code == 1
    refused = {one["call_id"]: (one["code"], one["rule"]) for one in answer["changes"] if one["change"] == "refused"}
    line = strict[: strict.index('"ech*"')].count("\n") + 1
    in_chat = {call for call, profile in echoed.items() if profile == "chat"}
    assert {call for call, (why, _) in refused.items() if why == "policy"} == in_chat
    assert {refused[call] for call in in_chat} == {("policy", f"strict.yaml:{line}")}
    elsewhere = set(echoed) - in_chat
    if bodies == "redacted":
        assert {call for call, (why, _) in refused.items() if why == "invalid_arguments"} == elsewhere
        # Arguments that were refused are not recorded.
        bad = {row["call_id"] for row in rows if (row["name"], row["outcome"]) == ("echo", "invalid_arguments")}
        assert {one["call_id"] for one in answer["changes"] if one["change"] == "unclear"} <= bad
    else:
        assert {one["call_id"] for one in answer["changes"] if one["change"] == "unclear"} >= elsewhere
    limited = [one for one in answer["changes"] if one["change"] == "limited"]
    assert {one["tool"] for one in limited} == {"main.count_words"}
    assert {row["name"] for row in rows if row["call_id"] in refused} == {"echo"}


def test_each_way_in_which_a_call_can_change_is_told_apart(run: Run, folder: Path) -> None:
    path = folder / "pegboard.yaml"
    path.write_text(CONFIG + "audit: {store: 'jsonl:./audit.jsonl', bodies: redacted}\n")
    calls = (
        [("ann", "chat", "count_words", {"text": CANARY})] * 4
        + [("bob", "operator", "shout", {}), ("bob", "operator", "delete_page", {"page": "p"})]
        + [("cy", "chat", "shout", {}), ("cy", "chat", "explode", {})]
    )
    recorded(path, len(calls), make=lambda number: calls[number])
    (folder / "week.jsonl").write_text(run("audit", "export").out)
    changed = CONFIG.replace("max_calls: 10", "max_calls: 3").replace("consent: always", "consent: never")
    changed = changed.replace("name: shout\n", "name: shout\n    consent: always\n")
    (folder / "new.yaml").write_text(changed.replace("include: [core],", "include: [core, admin],"))
    words = ("--from", "week.jsonl", "--config", "new.yaml")
    code, answer = replayed(run, *words)
    told = [(one["tool"], one["user"], one["then"], one["change"], one["code"]) for one in answer["changes"]]
    assert code == 1
    assert sorted(told) == [
        ("explode", "cy", "refused", "unclear", ""),
        ("main.count_words", "ann", "ran", "limited", "rate_limited"),
        ("main.delete_page", "bob", "asked", "allowed", ""),
        ("main.shout", "bob", "ran", "asked", "consent_required"),
        ("shout", "cy", "refused", "unclear", ""),
    ]
    # Arguments of a call to a hidden tool were never read, so nobody can say whether they would be valid.
    assert replayed(run, *words, "--fail-on", "unclear")[0] == 1
    assert replayed(run, *words, "--user", "cy")[1]["calls"] == 2
    text = run("replay", *words).out
    assert "8 calls: 3 as before, 1 over a limit now, 1 asked about now, 2 not judged, 1 allowed now." in text
    assert CANARY not in text
    (folder / "gone.yaml").write_text(CONFIG.replace("  chat: ", "  talk: "))
    _, gone = replayed(run, "--from", "week.jsonl", "--config", "gone.yaml", "--profile", "chat")
    assert {(one["code"], one["reason"]) for one in gone["changes"]} == {("profile", "there is no profile 'chat'")}


def test_a_run_of_an_agent_is_judged_as_a_run_and_tells_the_profile_of_its_calls(run: Run, folder: Path) -> None:
    spec = "{prompts: {system: Count.}, tools: [{group: core}], permissions: {denied_actions: [ask_counter]}}"
    (folder / "counter.yaml").write_text(
        f"apiVersion: pegboard/v1\nkind: Agent\nmetadata: {{name: counter, version: 0.1.0}}\nspec: {spec}\n"
    )
    model = "models: {default: {provider: openai_compatible, name: played, base_url: 'http://127.0.0.1:9/v1'}}\n"
    ask = "tools:\n  - {name: ask_counter, type: agent, agent: counter, description: Ask it.}\n"
    config = CONFIG.replace("tools:\n", ask, 1) + model + "files: [counter.yaml]\n"
    path = folder / "pegboard.yaml"
    path.write_text(config + "audit: {store: 'jsonl:./audit.jsonl'}\n")

    async def record() -> None:
        catalog, loaded = load_catalog(path)
        catalog.runtime.agents.make_model = playing({"played": [[("count_words", {"text": "a b"})], "two"]})
        await catalog.start()
        caller = caller_of(catalog.view(context_for(loaded, user="ann"), profile="chat"))
        for door in ("", "http"):
            ran = await catalog.agents.run("counter", "Count.", ctx=caller.with_request(door=door))
            assert ran.output == "two"
        await catalog.close()

    asyncio.run(record())
    code, same = replayed(run)
    assert (code, same["calls"], same["changes"]) == (0, 4, [])
    deny = 'deny: ["search_*"'
    assert deny in config
    (folder / "strict.yaml").write_text(config.replace(deny, f'{deny}, "counter"'))
    (folder / "narrow.yaml").write_text(config.replace(deny, f'{deny}, "count_*"'))
    _, strict = replayed(run, "--from", "pegboard.yaml", "--config", "strict.yaml")
    assert [(one["tool"], one["change"], one["code"]) for one in strict["changes"]] == [
        ("agent.counter", "refused", "policy")
    ]
    _, narrow = replayed(run, "--from", "pegboard.yaml", "--config", "narrow.yaml")
    assert [(one["tool"], one["change"], one["code"]) for one in narrow["changes"]] == [
        ("main.count_words", "refused", "policy")
    ] * 2
    gone = config.replace("files: [counter.yaml]\n", "").replace(ask, "tools:\n")
    (folder / "gone.yaml").write_text(gone)
    _, answer = replayed(run, "--from", "pegboard.yaml", "--config", "gone.yaml")
    assert {one["change"] for one in answer["changes"]} == {"unclear"}


@pytest.mark.usefixtures("folder")
def test_a_record_that_cannot_be_read_is_refused_with_the_next_step(run: Run, folder: Path) -> None:
    (folder / "pegboard.yaml").write_text(CONFIG)
    assert "has no audit. Add `audit: {store:" in run("replay").err
    ran = run("replay", "--from", "week.jsonl")
    assert (ran.code, "--from 'week.jsonl' cannot be read" in ran.err) == (2, True)
