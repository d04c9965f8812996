"""References in schemas: each that is followed is counted wherever it leads, and none is followed unseen."""

from __future__ import annotations

from typing import Any

import pytest

from pegboard import CallError, Catalog, DefinitionError, ToolSpec
from tests import timing
from tests.core.parts import ANN, echo, kind_of

ROOT = "http://schemas.test/root.json"
WORST: Any = {"v": "x"}


def linked(levels: int, name: Any, reference: Any) -> dict[str, Any]:
    """Return definitions of which each leads to the next by two ways, by names that `name` and `reference` give."""
    parts: dict[str, Any] = {
        f"d{at}": {**name(at), "anyOf": [{"$ref": reference(at + 1)}, {"$ref": reference(at + 1)}]}
        for at in range(levels)
    }
    return {**parts, f"d{levels}": {**name(levels), "const": 1}}


def inner(levels: int) -> dict[str, Any]:
    """Return a part with an identifier of its own, whose pointers begin at itself."""
    return {"$id": "inner.json", "$defs": linked(levels, lambda at: {}, lambda at: f"#/$defs/d{at}")}


def cheap(levels: int) -> dict[str, Any]:
    return {f"d{at}": {} for at in range(levels + 1)}


WAYS: dict[str, Any] = {
    "identifiers": lambda n: (
        {"$id": ROOT, "$defs": linked(n, lambda at: {"$id": f"d{at}.json"}, lambda at: f"d{at}.json")}, "d0.json",
    ),
    "identifiers of a schema without one": lambda n: (
        {"$defs": linked(n, lambda at: {"$id": f"d{at}.json#"}, lambda at: f"/d{at}.json")}, "d0.json",
    ),
    "whole addresses": lambda n: (
        {"$id": ROOT, "$defs": linked(n, lambda at: {"$id": f"d{at}.json"}, lambda at: f"http://schemas.test/d{at}.json")},
        "d0.json",
    ),
    "hosts without a path": lambda n: (
        {"$id": ROOT, "$defs": linked(n, lambda at: {"$id": f"http://d{at}.test"}, lambda at: f"http://d{at}.test")},
        "http://d0.test",
    ),
    "urns": lambda n: (
        {"$id": "urn:x:r", "$defs": linked(n, lambda at: {"$id": f"urn:x:{at}"}, lambda at: f"urn:x:{at}")}, "urn:x:0",
    ),
    "anchors": lambda n: ({"$defs": linked(n, lambda at: {"$anchor": f"a{at}"}, lambda at: f"#a{at}")}, "#a0"),
    "pointers into a part": lambda n: (
        {"$id": ROOT, "$defs": {**cheap(n), "inner": inner(n)}}, "inner.json#/$defs/d0",
    ),
    "pointers through a part": lambda n: (
        {"$id": ROOT, "$defs": {**cheap(n), "inner": inner(n)}}, "#/$defs/inner/$defs/d0",
    ),
    "escapes in pointers": lambda n: (
        {"$defs": {"a b": {"a/b~c": linked(n, lambda at: {}, lambda at: f"#/%24defs/a%20b/a~1b~0c/d{at}")}}},
        "#/$defs/a%20b/a~1b~0c/d0",
    ),
    "lists": lambda n: (
        {"$defs": {"all": {"allOf": [*linked(n, lambda at: {}, lambda at: f"#/$defs/all/allOf/{at}").values()]}}},
        "#/$defs/all/allOf/0",
    ),
}  # fmt: skip


def schema_of(way: str, levels: int) -> dict[str, Any]:
    whole, first = WAYS[way](levels)
    return {**whole, "type": "object", "properties": {"v": {"$ref": first}}}


def registered(schema: Any) -> Any:
    """Return a view of a catalog with one tool that takes what a schema describes."""
    catalog = Catalog()
    with timing.within(0.05, timing.CPU):
        catalog.register(ToolSpec(name="it", input_schema=schema), echo)
    return catalog.view(ANN)


@pytest.mark.parametrize("way", WAYS)
async def test_a_bomb_of_references_is_refused_however_they_are_written(way: str) -> None:
    with pytest.raises(CallError) as refusal:
        registered(schema_of(way, 22))
    assert refusal.value.error.kind == "schema_too_complex"
    view = registered(schema_of(way, 3))
    assert kind_of(await view.call("it", {"v": 1})) == "ok"
    assert kind_of(await view.call("it", {"v": "x"})) == "invalid_arguments"


def odd(name: str, reference: str, *, root: str = ROOT) -> dict[str, Any]:
    parts = linked(22, lambda at: {}, lambda at: f"#/$defs/d{at}")
    bomb: dict[str, Any] = {"$id": name, "$ref": "#/$defs/d0", "$defs": parts}
    defs = {"decoy": {"$id": "decoy.json"}, "bomb": bomb}
    return {"$id": root, "$defs": defs, "properties": {"v": {"$ref": reference}}}


@pytest.mark.parametrize(
    "schema",
    [
        odd("bomb.json", "./x/../bomb.json"),
        odd("bomb.json", "b%6Fmb.json"),
        odd("bomb.json", "http://schemas.test:80/bomb.json"),
        odd("bomb.json", "HTTP://schemas.test/bomb.json"),
        odd("bomb.json", "//schemas.test/bomb.json"),
        odd("bomb.json?a", "bomb.json?a"),
        odd("./decoy.json", "decoy.json"),
        odd("urn:decoy.json", "decoy.json", root="urn:a:b"),
        odd("bomb.json", "other.json"),
        odd("bomb.json", "#/$defs/nothing"),
        odd("bomb.json", "#/$defs%2Fbomb"),
        odd("bomb.json", "#/$defs/bomb/enum/+1"),
        odd("bomb.json", "#nowhere"),
        odd("bomb.json", "json-schema:///bomb.json", root=""),
    ],
    ids=lambda schema: schema["properties"]["v"]["$ref"],
)
def test_a_reference_that_can_be_read_in_two_ways_or_leads_nowhere_is_refused(schema: Any) -> None:
    with pytest.raises(DefinitionError, match=r"\$defs"):
        registered(schema)


def test_identifiers_within_identifiers_have_an_end() -> None:
    schema: Any = {"const": 1}
    for at in range(18):
        schema = {"$id": f"{'ab'[at % 2]}{at}/", "$defs": {"in": schema}}
    with pytest.raises(DefinitionError, match="is not followed"):
        registered({**schema, "properties": {"v": {"$ref": "b17/"}}})


async def test_parts_that_a_python_schema_holds_twice_are_read_once() -> None:
    shared: Any = {"$anchor": "it", "type": "integer"}
    part: Any = {"$id": "part.json", "$defs": {"it": shared, "again": shared}}
    schema: Any = {
        "$id": ROOT, "$defs": {"a": part}, "examples": [[part]], "properties": {"v": {"$ref": "part.json#it"}},
    }  # fmt: skip
    view = registered(schema)
    assert kind_of(await view.call("it", {"v": 1})) == "ok"
    assert kind_of(await view.call("it", {"v": "x"})) == "invalid_arguments"


async def test_an_older_draft_inside_is_counted_by_its_own_words() -> None:
    options: Any = {"enum": [{"z": at} for at in range(90)]}
    old = {
        "$schema": "http://json-schema.org/draft-07/schema#", "$id": "http://schemas.test/old",
        "items": [options] * 10, "additionalItems": options,
    }  # fmt: skip
    view = registered({"$defs": {"old": old}, "properties": {"v": {"$ref": "http://schemas.test/old"}}})
    with timing.within(0.05, timing.CPU):
        assert kind_of(await view.call("it", {"v": [{"z": 0}] * 9_000})) == "schema_too_complex"


def test_the_recursion_of_the_draft_of_2019_leads_to_every_part_that_takes_part() -> None:
    draft = "https://json-schema.org/draft/2019-09/schema"
    below = {"anyOf": [{"$recursiveRef": "#"}, {"$recursiveRef": "#"}]}
    parts: Any = {
        "id": "#named", "$schema": draft, "$id": "http://schemas.test/a", "$recursiveAnchor": True, "allOf": [below],
    }  # fmt: skip
    with pytest.raises(CallError, match="refers to itself"):
        registered({"$defs": {"a": parts}, "properties": {"v": {"$ref": "http://schemas.test/a"}}})


async def test_the_schema_language_itself_may_be_referred_to() -> None:
    view = registered({"properties": {"v": {"$ref": "https://json-schema.org/draft/2020-12/schema"}}})
    assert kind_of(await view.call("it", {"v": {"type": "string"}})) == "ok"
    assert kind_of(await view.call("it", {"v": {"type": "nothing"}})) == "invalid_arguments"
