"""Dialects: every schema goes out as the provider takes it, and a model's arguments come back as the tool's own."""

import random
import time
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegboard import Catalog, DefinitionError, ToolContext, ToolResult, ToolSpec
from pegboard.core.validated_entry import enforced_schema
from pegboard.core.view import View
from pegboard.providers.compile import TARGETS, problems, rewritten
from tests.providers.checkers import CHECKERS
from tests.providers.instances import Writer
from tests.providers.losses import unlisted
from tests.providers.shapes import OBJECT, SHAPES, TEXT, of
from tests.sizes import examples
from tests.timing import CPU, is_within

PARAMETERS = {
    "anthropic": "input_schema", "anthropic_strict": "input_schema", "gemini": "parametersJsonSchema",
    "openai_responses": "parameters",
}  # fmt: skip


def view_of(schema: Any, name: str = "t", **options: Any) -> View:
    catalog = Catalog()
    catalog.register(ToolSpec(name=name, input_schema=schema, **options), handler=lambda ctx, args: args)
    return catalog.view(ToolContext())


def sent(view: View, target: str) -> Any:
    """Return the schema of the one tool as the target is sent it."""
    (tool,) = view.export(target)
    return tool[PARAMETERS[target]] if target in PARAMETERS else tool["function"]["parameters"]


def effects(view: View, target: str) -> set[str]:
    return {f"{loss['path']} {loss['rule']} {loss['effect']}" for loss in view.export_report(target)}


def answers(schema: Any, count: int, seed: int = 0) -> Iterator[Any]:
    """Yield arguments that fit a schema."""
    for number in range(count):
        made = Writer(schema, seed * 1_000 + number).value(schema)
        if jsonschema_rs.is_valid(schema, made, validate_formats=True):
            yield made


# ---------------------------------------------------------------- the two laws, over every shape


@pytest.mark.parametrize("target", CHECKERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_no_exported_schema_breaks_a_documented_rule(shape: str, target: str) -> None:
    (tool,) = view_of(SHAPES[shape]).export(target)
    assert CHECKERS[target](tool) == []


@pytest.mark.parametrize("target", CHECKERS)
def test_what_fits_the_exported_schema_fits_the_tools_own_or_the_loss_is_listed(target: str) -> None:
    tried: set[str] = set()
    for shape, own in SHAPES.items():
        view = view_of(own)
        (entry,) = view.tools()
        report = view.export_report(target)
        for args in answers(sent(view, target), 25):
            tried.add(shape)
            assert unlisted(enforced_schema(entry), view.decode(target, "t", args), report) == [], (shape, args)
    assert len(tried) > len(SHAPES) - 6


NAMES = st.sampled_from(["a", "b", "c d", "1"])


OPENNESS = st.sampled_from([{}, {"additionalProperties": False}, {"additionalProperties": TEXT}, {"minProperties": 1}])


def _deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    few = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.builds(_object, st.dictionaries(NAMES, inner, max_size=3), st.sets(NAMES), OPENNESS),
        st.builds(
            lambda item, more: {"type": "array", "items": item, **more}, inner, st.sampled_from([{}, {"minItems": 1}])
        ),
        st.builds(lambda items: {"type": "array", "prefixItems": items, "items": False}, few),
        st.builds(lambda item: {"type": "object", "additionalProperties": item}, inner),
        st.builds(lambda key, items: {key: items}, st.sampled_from(["anyOf", "oneOf", "allOf"]), few),
        st.builds(lambda item: {"anyOf": [item, {"type": "null"}], "default": None}, inner),
    )


def _object(properties: dict[str, Any], required: set[str], more: dict[str, Any]) -> dict[str, Any]:
    return of(properties, *[name for name in properties if name in required], **more)


LEAVES = st.sampled_from(
    [
        {}, TEXT, OBJECT, {"type": "null"}, {"type": "boolean"}, {"type": "array"}, {"type": ["string", "integer"]},
        {"type": "integer", "exclusiveMinimum": 2, "format": "int32"}, {"type": "number", "maximum": 5, "default": 1},
        {"type": "string", "maxLength": 5, "minLength": 1}, {"type": "string", "format": "date"}, {"const": "k"},
        {"enum": ["a", 1, None]}, {"$ref": "#/$defs/Word"}, {"$ref": "#/$defs/Node", "description": "A node."},
    ]
)  # fmt: skip
DEFINITIONS = {
    "Word": {"type": "string", "pattern": "^[a-z ]*$"},
    "Node": of({"next": {"$ref": "#/$defs/Node"}, "word": TEXT}, "word"),
}


@pytest.mark.parametrize("target", CHECKERS)
@settings(max_examples=examples(80), deadline=None, derandomize=True, database=None)
@given(
    properties=st.dictionaries(NAMES, st.recursive(LEAVES, _deeper, max_leaves=6), max_size=3), required=st.sets(NAMES)
)
def test_both_laws_hold_for_random_schemas(target: str, properties: Any, required: set[str]) -> None:
    view = view_of(_object(properties, required, {"$defs": DEFINITIONS}))
    (tool,) = view.export(target)
    (entry,) = view.tools()
    assert CHECKERS[target](tool) == []
    report = view.export_report(target)
    for args in answers(sent(view, target), 5):
        assert unlisted(enforced_schema(entry), view.decode(target, "t", args), report) == [], args


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("a b root key value".split()), inner),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=examples(80), deadline=None, derandomize=True, database=None)
@given(args=ANY_JSON, shape=st.sampled_from(sorted(SHAPES)))
def test_arguments_that_fit_nothing_come_back_without_a_fault(args: Any, shape: str) -> None:
    view = view_of(SHAPES[shape])
    for target in TARGETS:
        view.decode(target, "t", args)


CHAIN = range(30)
OBJECTS = {f"p{number}": {"$ref": "#/$defs/D0"} for number in range(300)}
HOSTILE: dict[str, dict[str, Any]] = {
    "each holds the next twice": {
        f"D{i}": of({"a": {"$ref": f"#/$defs/D{i + 1}"}, "b": {"$ref": f"#/$defs/D{i + 1}"}}) for i in CHAIN
    },
    "each is the next twice": {f"D{i}": {"allOf": [{"$ref": f"#/$defs/D{i + 1}"}] * 2} for i in CHAIN},
    "each may be the next twice": {
        f"D{i}": of({f"z{i}": TEXT}, anyOf=[{"$ref": f"#/$defs/D{i + 1}"}] * 2) for i in CHAIN
    },
    "all hold each other": {
        f"D{i}": of({f"p{j}": {"$ref": f"#/$defs/D{(i + j) % 30}"} for j in CHAIN}, "p1") for i in CHAIN
    },
    "much, often": {"D0": {"enum": [f"{'v' * 50}{number}" for number in range(5_000)]}},
    "nothing but itself": {"D0": {"$ref": "#/$defs/D0"}},
    "itself and more": {"D0": {"allOf": [{"$ref": "#/$defs/D0"}, TEXT]}},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_schema_that_grows_without_end_is_cut_and_the_loss_is_listed(name: str) -> None:
    schema = of({**OBJECTS, "odd key": {"oneOf": [TEXT]}}, **{"$defs": {**HOSTILE[name], "D30": TEXT}})
    for target in ("openai_strict", "anthropic", "gemini"):
        started = time.process_time()
        made = rewritten(target, schema)
        assert is_within(time.process_time() - started, 1.0, CPU)
        assert len(orjson.dumps(made.schema)) < 1_000_000
        assert problems(target, "t", made.schema) == []
        # Circles can be said, but for Gemini; what only grows is cut wherever it is rewritten.
        is_whole = made.schema is schema or (name == "all hold each other" and target != "gemini")
        assert any(loss.effect == "widened" for loss in made.losses) is not is_whole


# ---------------------------------------------------------------- what is sent, whole


def test_a_schema_that_breaks_no_rule_goes_out_as_it_was_declared():
    schema = of({"a": {"$ref": "#/$defs/A"}, "b": {"type": "integer", "default": 3}}, "a", **{"$defs": {"A": TEXT}})
    view = view_of(schema)
    assert [sent(view, target) for target in ("openai", "anthropic")] == [schema, schema]
    assert view.export("mcp")[0]["inputSchema"] == schema


def test_strict_has_every_property_required_and_null_for_what_may_be_left_out():
    view = view_of(of({"city": TEXT, "days": {"type": "integer", "default": 3}, "tags": OBJECT}, "city"))
    entry = of(
        {"key": TEXT, "value": {"type": "string", "description": "Any JSON value, written as JSON text."}},
        "key",
        "value",
    )
    assert view.export("openai_strict")[0]["function"] == {
        "name": "t",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": ["integer", "null"], "description": "(default: 3)"},
                "tags": {
                    "type": ["array", "null"],
                    "description": "An object, given as a list of its keys and values.",
                    "items": {**entry, "additionalProperties": False},
                },
            },
            "required": ["city", "days", "tags"],
            "additionalProperties": False,
        },
    }  # fmt: skip
    tags = [{"key": "a", "value": "1"}, {"key": "b", "value": "plain"}]
    assert view.decode("openai_strict", "t", {"city": "Ulm", "days": None, "tags": tags}) == {
        "city": "Ulm",
        "tags": {"a": 1, "b": "plain"},
    }
    assert effects(view, "openai_strict") == {"$.properties.days default reworded"}


def test_gemini_is_told_in_words_what_it_has_no_keyword_for():
    schema = of({"a": {"type": "string", "description": "A word.", "maxLength": 9, "default": "x", "const": "x"}}, "a")
    view = view_of(schema)
    assert sent(view, "gemini")["properties"]["a"] == {
        "type": "string",
        "enum": ["x"],
        "description": 'A word. (at most 9 characters; default: "x")',
    }
    assert effects(view, "gemini") == {"$.properties.a maxLength widened", "$.properties.a default reworded"}


def test_a_tree_stays_a_tree_where_the_target_can_say_it_and_is_cut_where_it_cannot():
    strict = sent(view_of(SHAPES["tree that never ends"]), "openai_strict")
    assert strict["properties"]["root"] == {"$ref": "#/$defs/Tree"}
    view = view_of(SHAPES["tree that never ends"])
    assert "$defs" not in sent(view, "gemini")
    assert {effect.split()[-1] for effect in effects(view, "gemini")} == {"widened"}


def test_alternatives_at_the_top_are_laid_over_each_other():
    view = view_of(SHAPES["root one of"])
    assert sent(view, "anthropic") == {"type": "object", "properties": {"a": TEXT, "b": {"type": "integer"}}}
    assert effects(view, "anthropic") == {"$ oneOf widened"}
    assert sent(view_of(SHAPES["root needs one"]), "openai")["description"] == "(needed: a or b)"


@pytest.mark.parametrize(
    ("shape", "given", "meant"),
    [
        ("pair", {"a": {"item_1": "x", "item_2": 3}}, {"a": ["x", 3]}),
        ("loose pair", {"a": {"item_1": "x", "item_2": None}}, {"a": ["x"]}),
        ("objects listed", {"a": '{"x":1}'}, {"a": {"x": 1}}),
        ("untyped", {"a": "[1, 2]", "b": "[1", "c": None}, {"a": [1, 2], "b": "[1"}),
        ("map of maps", {"a": [{"key": "k", "value": [{"key": "l", "value": "1"}]}]}, {"a": {"k": {"l": 1}}}),
        (
            "tree",
            {"root": {"name": "r", "children": [{"name": "c", "children": None}]}},
            {"root": {"name": "r", "children": [{"name": "c"}]}},
        ),
    ],
)  # fmt: skip
def test_what_was_turned_around_is_turned_back(shape: str, given: Any, meant: Any) -> None:
    assert view_of(SHAPES[shape]).decode("openai_strict", "t", given) == meant


def test_keys_that_a_target_cannot_spell_are_mapped_and_come_back():
    view = view_of(SHAPES["odd keys"])
    keys = list(sent(view, "anthropic")["properties"])
    args = dict(zip(keys, ["x", 3, "y", "z"], strict=True))
    assert view.decode("anthropic", "t", args) == {"a b": "x", "ü": 3, "x" * 80: "y", "$ok.-": "z"}


# ---------------------------------------------------------------- names, text, bytes


def test_a_name_that_gemini_cannot_carry_is_mapped_and_found_again():
    view = view_of(of({"a": TEXT}), name="3d-view")
    (tool,) = view.export("gemini")
    assert (tool["name"][:9], len(tool["name"])) == ("_3d-view_", 17)
    assert view.wire_name("gemini", tool["name"]) == "3d-view"
    assert view.decode("gemini", tool["name"], '{"a": "x"}') == {"a": "x"}
    assert [view.wire_name("openai", name) for name in ("3d-view", "unknown")] == ["3d-view", "unknown"]


def test_no_tool_can_take_the_mapped_name_of_another():
    catalog = Catalog()
    catalog.register(ToolSpec(name="3d"), handler=lambda ctx, args: "mine")
    mapped = catalog.view(ToolContext()).export("gemini")[0]["name"]
    catalog.register(ToolSpec(name=mapped), handler=lambda ctx, args: "theirs")
    view = catalog.view(ToolContext())
    names = [tool["name"] for tool in view.export("gemini")]
    assert len(set(names)) == 2
    assert [view.wire_name("gemini", name) for name in names] == ["3d", mapped]


async def test_text_that_is_no_json_comes_back_for_the_call_to_refuse():
    view = view_of(of({"a": TEXT}, "a"))
    assert view.decode("openai", "t", '{"a": "x"}') == {"a": "x"}
    result: ToolResult = await view.call("t", view.decode("openai", "t", '{"a": '))
    assert (result.error and result.error.kind) == "invalid_arguments"
    with pytest.raises(KeyError, match="No tool named 'other'"):
        view.decode("openai", "other", {})


def test_unknown_targets_come_with_the_known_ones():
    view = view_of(OBJECT)
    for ask in (
        view.export_report,
        lambda target: view.decode(target, "t", {}),
        lambda target: problems(target, "t", {}),
    ):
        with pytest.raises(DefinitionError, match=r"Unknown export target 'opnai'.*'openai'"):
            ask("opnai")


def test_bytes_are_the_same_whatever_order_the_tools_came_in():
    names = list(SHAPES)
    seen: dict[str, set[bytes]] = {target: set() for target in TARGETS}
    for seed in range(5):
        random.Random(seed).shuffle(names)
        catalog = Catalog()
        for name in names:
            spec = ToolSpec(name="t", namespace=f"n{sorted(SHAPES).index(name)}", input_schema=SHAPES[name])
            catalog.register(spec, handler=lambda ctx, args: None)
        view = catalog.view(ToolContext())
        for target in TARGETS:
            seen[target].add(view.export_bytes(target) + orjson.dumps(view.export_report(target)))
    assert {len(found) for found in seen.values()} == {1}


# ---------------------------------------------------------------- what a provider would refuse


@pytest.mark.parametrize("target", CHECKERS)
def test_what_was_exported_has_no_problems_left(target: str) -> None:
    for shape in SHAPES.values():
        assert problems(target, "t", sent(view_of(shape), target)) == []


def test_problems_say_where_and_why():
    schema = of({"a": {"type": "array"}, "b c": {"oneOf": [TEXT]}}, oneOf=[{}])
    assert [problem[:2] for problem in problems("openai", "no.dots", schema)] == [
        ("$", "name"),
        ("$", "root:oneOf"),
        ("$.properties.a", "array_items"),
    ]
    assert [problem[:2] for problem in problems("anthropic", "t", schema)] == [("$", "root:oneOf"), ("$", "key")]
    assert problems("mcp", "t", schema) == []


@pytest.mark.parametrize("never", [{"not": {}}, {"not": True}, False, {"anyOf": [{"not": {}}, False]}], ids=str)
@pytest.mark.parametrize("target", [target for target in CHECKERS if target not in ("openai", "anthropic")])
def test_a_branch_that_nothing_fits_is_no_branch(target: str, never: Any) -> None:
    word = {"type": "string"}
    view = view_of(
        of({"either": {"anyOf": [never, word]}, "left_out": never, "odd": {"type": "string", "minLength": 1}}, "either")
    )
    shown = sent(view, target)["properties"]
    assert shown["either"] == word
    assert "left_out" not in shown
    assert not any(loss["path"] == "$.properties.either" for loss in view.export_report(target))
