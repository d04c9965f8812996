"""The schema judge: no schema and no value holds the event loop, whatever it takes to refuse them."""

import gc
import json
import os
import random
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from pegboard import CallError, Catalog, DefinitionError, ToolContext, ToolSpec
from pegboard.core.schema import check_bounds, compile_schema
from pegboard.core.schema_cost import SchemaCost
from tests import timing
from tests.properties.schema_writer import written
from tests.sizes import IS_SOAK

HELD_S = 0.05
CORPUS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "schema_judge_corpus.json").read_text())


def steps(schema: Any, values: list[Any]) -> Counter[str]:
    """Judge the values, each step on its own clock, and return how often each step came to what."""
    met: Counter[str] = Counter()

    def timed(step: str, run: Any) -> Any:
        started = timing.CPU()
        try:
            result = run()
        except (CallError, DefinitionError) as error:
            kind = error.error.kind if isinstance(error, CallError) else "no schema"
            met[f"{step}: {kind}"] += 1
            result = None
        took_s = timing.CPU() - started
        assert timing.is_within(took_s, HELD_S, timing.CPU), f"to {step} took {took_s:.3f} s"
        return result

    judge: Any = timed("compile", lambda: compile_schema(schema))
    if judge is None:
        return met
    for value in values:
        try:
            check_bounds(value)
        except CallError:
            continue
        is_valid = timed("judge", partial(judge.is_valid, value))
        met[f"judged: {is_valid}"] += 1
        if is_valid is False:
            assert timed("tell", partial(judge.problems, value))
    return met


@pytest.fixture(autouse=True)
def _no_collection():  # pyright: ignore[reportUnusedFunction] - pytest calls it
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def built(code: str) -> Any:
    """Return a value of the corpus: JSON, or Python for what would be too long as JSON."""
    return eval(code, {}, {})


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case["name"])
def test_what_once_held_the_loop_holds_it_no_more(case: dict[str, Any]) -> None:
    met = steps(built(case["schema"]), [built(code) for code in case["values"]])
    assert set(case["met"]) <= met.keys(), met


@pytest.mark.slow
def test_no_written_schema_holds_the_loop() -> None:
    met: Counter[str] = Counter()
    seeds = 100 if IS_SOAK else 30
    for seed in range(seeds):
        met += steps(*written(seed))
    # The writer gets as far as every answer, and the judge is not one that refuses everything.
    assert met.keys() >= {"judged: True", "judged: False", "judge: schema_too_complex", "compile: schema_too_complex"}
    assert met["judged: True"] + met["judged: False"] > 2 * seeds, met


# What costs most for each byte: levels, values, characters, digits of every kind, and keys.
DENSE: list[Any] = [
    lambda count: orjson.loads(b"[" * min(count // 2, 250) + b"]" * min(count // 2, 250)),
    lambda count: [0] * (count // 2),
    lambda count: "x" * count,
    lambda count: [1e308] * (count // 6),
    lambda count: [5e-324 * at for at in range(count // 6)],
    lambda count: [(1 << 63) + at for at in range(count // 20)],
    lambda count: {f"{at:x}": 0 for at in range(count // 8)},
    lambda count: [[0.5]] * (count // 6),
]
COSTLY: list[Any] = [
    {"items": {"enum": [1, 2.5]}}, {"uniqueItems": True, "items": {"type": "number"}}, {"items": {"minimum": 1}},
    {"items": {"multipleOf": 0.1}}, {"minLength": 2, "maxLength": 9}, {"propertyNames": {"pattern": "(.*a){9}b"}},
    {"$ref": "#/$defs/n", "$defs": {"n": {"anyOf": [{"items": {"$ref": "#/$defs/n"}}, {"type": "number"}]}}},
    {"$ref": "#/$defs/n", "$defs": {"n": {"items": {"anyOf": [{"$ref": "#/$defs/n"}] * 2}}}},
    {"anyOf": [{"items": {"maximum": 3}}, {"items": {"const": 0.5}}], "minProperties": 1}, {"pattern": "(.*a){9}b"},
    {"items": {"anyOf": [{"$ref": "#"}, {"$ref": "#/$defs/m"}]},
     "$defs": {"m": {"dependentRequired": {"a": [*map(str, range(40))]}, "items": {"$ref": "#/$defs/m"}}}},
]  # fmt: skip


def within(max_bytes: int, dense: Any) -> Any:
    """Return the largest value of its kind that has at most so many bytes as JSON."""
    count = max_bytes
    while len(orjson.dumps(value := dense(count))) > max_bytes and count:
        count -= count // 32 + 1
    return value


def test_what_is_judged_uncounted_would_be_let_through_if_it_was_counted() -> None:
    """Else a value that is short as text could hold the loop."""
    cases = [written(seed) for seed in range(60 if IS_SOAK else 6)] + [(schema, []) for schema in COSTLY]
    uncounted = 0
    for schema, values in cases:
        try:
            cost = SchemaCost(schema)
        except (CallError, DefinitionError):
            continue
        max_bytes = cost.uncounted_bytes
        if not max_bytes:  # recursive: always counted
            continue
        for value in (*values, *(within(max_bytes, dense) for dense in DENSE)):
            try:
                is_uncounted = len(orjson.dumps(value)) <= max_bytes
            except TypeError:
                continue
            if is_uncounted:
                uncounted += 1
                cost.hold(value)
    assert uncounted > 50


@pytest.mark.soak
@pytest.mark.parametrize("part", range(60))
def test_no_schema_of_fresh_seeds_holds_the_loop(part: int) -> None:
    first = random.SystemRandom().randrange(1 << 40)
    ends = timing.perf_counter() + float(os.environ.get("PEGBOARD_FUZZ_S", "60"))
    seed = first
    while timing.perf_counter() < ends:
        try:
            steps(*written(seed))
        except AssertionError as error:
            raise AssertionError(f"seed {seed} of part {part}: {error}") from error
        seed += 1
    print(f"{seed - first} seeds from {first}")


@pytest.mark.parametrize(
    "rule",
    [
        {"properties": 1}, {"patternProperties": 1}, {"prefixItems": {}}, {"dependentRequired": []}, {"enum": "x"},
        {"required": "a"}, {"$ref": 7}, {"pattern": 3}, {"anyOf": {}}, {"$ref": "#/a/b"},
        {"$ref": "#/anyOf/7", "anyOf": [{}]}, {"type": 1}, {"items": [{}]}, {"$ref": "urn:none"}, {"$ref": "#none"},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_schema_is_refused_as_that(rule: Any) -> None:
    assert steps({"anyOf": [True, rule, rule]}, []) == {"compile: no schema": 1}


async def test_a_call_that_would_hold_the_loop_is_refused_and_the_next_is_answered() -> None:
    node = {"$ref": "#/$defs/node"}
    tree: Any = {"properties": {"a": {"anyOf": [node, node]}, "z": {"type": "string"}}}
    schema: Any = {"type": "object", "properties": {"v": node}, "$defs": {"node": tree}}
    catalog, runs = Catalog(), []
    catalog.register(ToolSpec(name="grow", input_schema=schema), lambda ctx, args: runs.append(args) or "ran")
    view = catalog.view(ToolContext())
    deep: Any = {"z": 1}
    for _ in range(40):
        deep = {"a": deep}
    started = timing.CPU()
    refused = await view.call("grow", {"v": deep})
    assert timing.is_within(timing.CPU() - started, HELD_S, timing.CPU)
    assert refused.error is not None
    assert (refused.error.kind, runs) == ("schema_too_complex", [])
    assert not (await view.call("grow", {"v": {"a": {"a": {"z": "end"}}}})).is_error


def test_a_large_value_that_fits_has_no_problems() -> None:
    assert compile_schema({"items": {"type": "integer"}}).problems([1] * 20_000) == []
