"""`pegboard plan`: what a changed config gives and takes, and when a schema change counts as compatible."""

import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegboard.core.schema import compile_schema
from pegboard.planning.schema_change import compare_schemas
from tests.cli.conftest import Run
from tests.sizes import examples

CANARY = "canary-3f8a1c77e2b94d60"

texts = st.sampled_from(["", "a", "ab", "abc", "abcd"])
leaves = st.one_of(
    st.builds(
        lambda least, more: {"type": "integer", "minimum": least, "maximum": least + more},
        st.integers(0, 3), st.integers(0, 3),
    ),
    st.builds(
        lambda least, more: {"type": "string", "minLength": least, "maxLength": least + more},
        st.integers(0, 2), st.integers(0, 2),
    ),
    st.sampled_from([
        {"type": "boolean"}, {"type": "null"}, {"type": "number"}, {"type": ["string", "null"]}, True,
        {"enum": [1, "a", None]}, {"const": 2}, {"type": "string", "pattern": "^a"}, {"not": {"type": "string"}},
        {"multipleOf": 2}, {"type": "integer", "multipleOf": 4},
    ]),
)  # fmt: skip


def composed(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    objects = st.builds(
        lambda props, required, others: {
            "type": "object", "properties": props, "required": sorted(required), "additionalProperties": others,
        },
        st.dictionaries(st.sampled_from("xyz"), inner, max_size=3), st.sets(st.sampled_from("xyz"), max_size=2),
        st.one_of(st.booleans(), inner),
    )  # fmt: skip
    arrays = st.builds(
        lambda items, size: {"type": "array", "items": items, "maxItems": size}, inner, st.integers(0, 2)
    )
    choices = st.builds(
        lambda rule, parts: {rule: parts},
        st.sampled_from(["anyOf", "oneOf", "allOf"]),
        st.lists(inner, min_size=1, max_size=3),
    )
    patterned = st.builds(
        lambda one, rest: {"patternProperties": {"^x": one}, "additionalProperties": rest}, inner, inner
    )
    return st.one_of(objects, arrays, choices, patterned)


schemas = st.recursive(leaves, composed, max_leaves=6).map(
    lambda one: one if isinstance(one, dict) else {"allOf": [one]}
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-1, 7), st.sampled_from([0.5, 2.0]), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("xyzw"), inner, max_size=3)),
    max_leaves=6,
)


@settings(max_examples=examples(2_000, few=100))
@given(before=schemas, after=schemas, tried=st.lists(values, min_size=20, max_size=40))
def test_a_compatible_schema_loses_no_valid_value(before: Any, after: Any, tried: list[Any]) -> None:
    for first, second in ((before, after), (before, {"anyOf": [after, before]}), ({"allOf": [before, after]}, before)):
        verdict = compare_schemas(first, second).verdict
        was, now = compile_schema(first).is_valid, compile_schema(second).is_valid
        if verdict in ("same", "compatible"):
            assert not [value for value in tried if was(value) and not now(value)]


def test_a_plan_against_git_names_what_breaks_and_what_got_weaker(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", CANARY)
    path = folder / "pegboard.yaml"
    text = path.read_text().replace("settings: {web: false}", 'settings: {web: false, key: "${TOKEN}"}')
    path.write_text(text)
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"]):
        subprocess.run(["git", *words], check=True)
    changed = text.replace("consent: always", "consent: never").replace("window_seconds: 60", "window_seconds: 120")
    changed = changed.replace("unique: {type: boolean, default: false}", "unique: {type: boolean, required: true}")
    path.write_text(changed.replace('deny: ["search_*"]', 'deny: ["search_*", echo]').replace("Delete a page.", CANARY))
    ran = run("plan", "--json", "--fail-on", "lost")
    assert ran.code == 1
    told = {(c["kind"], c["tool"], c["what"]) for one in orjson.loads(ran.out)["profiles"] for c in one["changes"]}
    assert told == {
        ("lost", "echo", "policy"),
        ("breaking", "count_words", "input"),
        ("weaker", "delete_page", "consent"),
        ("stronger", "count_words", "rate_limit"),
        ("stronger", None, "deny"),
    }
    assert run("plan", "--fail-on", "breaking").code == 1
    assert run("plan", "--profile", "operator", "--fail-on", "lost").code == 0
    markdown = run("plan", "--markdown")
    assert "| **weaker** | `delete_page` | `consent` | `always → never` | `operator` |" in markdown.out
    assert CANARY not in ran.out + ran.err + markdown.out + markdown.err
    assert (
        subprocess.run(["git", "status", "--porcelain", "-uno"], check=True, capture_output=True).stdout
        == b" M pegboard.yaml\n"
    )


def test_a_gained_tool_is_explained_by_the_change_and_not_as_if_it_were_still_hidden(run: Run, folder: Path) -> None:
    path, old = folder / "pegboard.yaml", folder / "old.yaml"
    text = path.read_text()
    old.write_text(text.replace('deny: ["search_*"]', 'deny: ["search_*", echo]'))
    path.write_text(text.replace("chat: {include: [core]", "chat: {include: [core, admin]"))
    profiles = orjson.loads(run("plan", "--against", "old.yaml", "--json").out)["profiles"]
    [chat] = [one for one in profiles if one["profile"] == "chat"]
    gained = {c["tool"]: (c["what"], c["detail"]) for c in chat["changes"] if c["kind"] == "gained"}
    assert gained["echo"][0] == "policy"
    assert gained["echo"][1].startswith("no rule denies it any more; the reason before: denied by ['echo']")
    assert gained["explode"][0] == "group"
    assert gained["explode"][1].startswith("the profile now includes it; the reason before: not in include=['core']")


def test_a_plan_tells_which_budgets_got_weaker(run: Run, folder: Path) -> None:
    path, old = folder / "pegboard.yaml", folder / "old.yaml"
    text = path.read_text()
    before = (
        "a: {per: day, calls: 5}, b: {per: day, calls: 5, cost: 2}, c: {per: day, calls: 5}, "
        "d: {per: 60, cost: 1, unit: credits, users: ann}"
    )
    after = "b: {per: day, calls: 4, cost: 3}, c: {per: week, calls: 5, each: user}, e: {per: day, cost: 1}, "
    old.write_text(f"{text}budgets: {{rules: {{{before}}}}}\n")
    path.write_text(f"{text}budgets: {{rules: {{{after}}}}}\n")
    changes = orjson.loads(run("plan", "--against", "old.yaml", "--json").out)["all_profiles"]
    assert {(c["kind"], c["what"], c["detail"]) for c in changes} == {
        ("weaker", "budgets.a", "5 calls per day → none"),
        ("stronger", "budgets.b.calls", "5 → 4"),
        ("weaker", "budgets.b.cost", "2 usd → 3 usd"),
        ("changed", "budgets.c", "5 calls per day → 5 calls per week, each user"),
        ("weaker", "budgets.d", "1 credits per 60 s, users ann → none"),
        ("stronger", "budgets.e", "none → 1 usd per day"),
    }


def test_a_plan_runs_no_hook_or_monitor_of_the_repository(run: Run, folder: Path) -> None:
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"]):
        subprocess.run(["git", *words], check=True)
    ran = folder / "hook-ran"
    script = folder / ".git" / "hooks" / "post-index-change"
    script.parent.mkdir(exist_ok=True)
    script.write_text(f"#!/bin/sh\ntouch '{ran}'\n")
    script.chmod(0o755)
    subprocess.run(["git", "config", "core.fsmonitor", str(script)], check=True)
    assert run("plan").code == 0
    assert not ran.exists()
    subprocess.run(["git", "add", "."], check=True)
    assert ran.exists(), "git would have run it"


@pytest.mark.usefixtures("folder")
def test_what_cannot_be_compared_with_is_refused_with_the_next_step(run: Run) -> None:
    assert "is in no git repository" in run("plan").err
    assert "it is not loaded from a URL" in run("plan", "--against", "https://example.com/pegboard.yaml").err
