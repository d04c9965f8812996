"""Schema: arguments that attack the reader or the validator are refused at once, and nothing is ever fetched."""

import asyncio
import gc
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard import Bounds, CallError, Catalog, DefinitionError, Secret, ToolSpec
from pegboard.core import schema as schema_module
from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.json_reader import parse_json
from pegboard.core.schema import check_bounds, compile_schema, json_path
from tests import timing
from tests.core.parts import ANN, echo, kind_of, one_tool

ANYTHING = {"v": {}}


@contextmanager
def within(milliseconds: float) -> Iterator[None]:
    """Allow so much CPU time of this thread: a busy machine may be slow, not the code.

    A collection of all that earlier tests left, or a thread of one, was taken for the reader once: .3 s for .01.
    """
    gc.disable()
    try:
        with timing.within(milliseconds / 1e3, timing.OF_THREAD):
            yield
    finally:
        gc.enable()


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1, "a": 2}', "the key 'a' occurs twice"),
        ('{"a": {"b": 1, "b": 1}}', "the key 'b' occurs twice"),
        ('{"a": 1, "\\u0061": 2}', "the key 'a' occurs twice"),
        ('{"a": ":", "a": "\\":"}', "the key 'a' occurs twice"),
        ('{"a": NaN}', "not JSON"),
        ('{"a": Infinity}', "not JSON"),
        ('{"a": 1e999}', ""),
        ('{"a": 01}', "not JSON"),
        ("{'a': 1}", "not JSON"),
        ('{"a": 1,}', "not JSON"),
        ('{"a": 1} x', "not JSON"),
        ("", "not JSON"),
        ('{"a": "\ud800"}', ""),
        ('{"a": NaN, "b": ' + "1" * 400 + "}", "NaN is not a JSON number"),
        ('{"a": ' + "1" * 400 + ', "b": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested more than 64 levels"),
        ('{"a": ' + "9" * 1_001 + "}", "an integer has more than 1000 digits"),
        ('{"a": -' + "9" * 1_001 + "}", "an integer has more than 1000 digits"),
        ('{"a": ' + "1" * 400_000 + "}", "an integer has more than 1000 digits"),
    ],
    ids=lambda value: ascii(value)[:30],
)
async def test_text_that_is_no_strict_json_is_refused(text: str, words: str) -> None:
    with within(50):
        result = await one_tool().view(ANN).call("echo", text.encode("utf-8", "surrogatepass"))
    assert (kind_of(result), words in result.text) == ("invalid_arguments", True), result.text


numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
keys = st.text(max_size=5)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
)


def has_nul(value: Any) -> bool:
    if isinstance(value, dict):
        return any(has_nul(inner) for pair in value.items() for inner in pair)
    return any(map(has_nul, value)) if isinstance(value, list) else isinstance(value, str) and "\0" in value


@given(st.dictionaries(keys, json_values, max_size=4))
def test_every_json_value_is_read_back_as_it_is(value: dict[str, Any]) -> None:
    for escaped in (True, False):
        text = json.dumps(value, ensure_ascii=escaped)
        try:
            encoded = text.encode()
        except UnicodeEncodeError:
            continue
        if has_nul(value):
            for refused in (text, encoded):
                with pytest.raises(CallError, match="a NUL character"):
                    parse_json(refused)
        else:
            assert parse_json(text) == parse_json(encoded) == value


@pytest.mark.parametrize(
    "number",
    [
        2**63,
        2**64,
        -(2**63) - 1,
        12345678901234567890123,
        0,
        -1,
        pytest.param(10**999, id="10**999"),
    ],
)
async def test_a_large_integer_is_not_rounded(number: int) -> None:
    seen: list[Any] = []

    async def keep(ctx: Any, args: Any) -> str:
        seen.append(args["v"])
        return "kept"

    view = one_tool(keep, properties={"v": {"type": "integer"}}).view(ANN)
    for args in ({"v": number}, f'{{"v": {number}}}'.encode()):
        assert kind_of(await view.call("echo", args)) == "ok"
    assert seen == [number, number]


async def test_an_integer_may_have_1000_digits_and_no_more() -> None:
    view = one_tool(lambda ctx, args: "ok", properties={"v": {"type": "integer"}}).view(ANN)
    assert kind_of(await view.call("echo", {"v": 10**999})) == "ok"
    assert kind_of(await view.call("echo", {"v": -(10**1000)})) == "invalid_arguments"


# ---------------------------------------------------------------- shape and size


def nested(depth: int, *, of: str) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if of == "lists" else {"k": value}
    return value


@pytest.mark.parametrize("of", ["lists", "objects"])
async def test_a_document_10_000_deep_is_refused_in_no_time(of: str) -> None:
    view = one_tool(properties=ANYTHING).view(ANN)
    opened, closed = ("[", "]") if of == "lists" else ('{"k":', "}")
    text = '{"v":' + opened * 10_000 + "1" + closed * 10_000 + "}"
    value = nested(10_000, of=of)
    with within(50):
        results = [
            await view.call("echo", text.encode("utf-8", "surrogatepass")),
            await view.call("echo", {"v": value}),
        ]
    assert [kind_of(result) for result in results] == ["invalid_arguments"] * 2
    while isinstance(value, list | dict):  # so that freeing it does not recurse either
        value = value[0] if isinstance(value, list) else value["k"]


def test_64_levels_pass_and_65_do_not() -> None:
    for of in ("lists", "objects"):
        check_bounds(nested(64, of=of))
        with pytest.raises(CallError, match="more than 64 levels"):
            check_bounds(nested(65, of=of))


async def test_a_million_keys_are_refused_in_no_time() -> None:
    view = one_tool().view(ANN)
    value = {str(number): 0 for number in range(1_000_000)}
    text = "{" + ",".join(f'"{number}":0' for number in range(300_000)) + "}"
    assert len(text) < 4 * 1024 * 1024
    with within(50):
        result = await view.call("echo", value)
    assert (kind_of(result), len(result.text) < 300) == ("invalid_arguments", True)
    with within(250):
        assert kind_of(await view.call("echo", text.encode("utf-8", "surrogatepass"))) == "invalid_arguments"


async def test_10_000_keys_pass_and_one_more_does_not() -> None:
    view = one_tool().view(ANN)
    for number, kind in ((10_000, "ok"), (10_001, "invalid_arguments")):
        assert kind_of(await view.call("echo", {str(i): 0 for i in range(number)})) == kind
        assert kind_of(await view.call("echo", {"k": {str(i): 0 for i in range(number)}})) == kind


async def test_text_longer_than_a_request_may_be_is_not_read() -> None:
    view = one_tool(catalog=Catalog(bounds=Bounds(request_body_bytes=100))).view(ANN)
    assert kind_of(await view.call("echo", ('{"v": "' + "x" * 100 + '"}').encode())) == "invalid_arguments"
    assert kind_of(await view.call("echo", ('{"v": "é' + "é" * 45 + '"}').encode())) == "invalid_arguments", (
        "bytes count, not characters"
    )
    assert kind_of(await view.call("echo", b'{"v": "x"}')) == "ok"


@pytest.mark.parametrize(
    "value", [{1: 2}, {"a": {None: 1}}, {"a": object()}, {"a": b"x"}, {"a": {1, 2}}, {"a": (1, 2)}, {"a": 1j}]
)
async def test_python_values_that_are_no_json_are_refused(value: Any) -> None:
    assert kind_of(await one_tool().view(ANN).call("echo", value)) == "invalid_arguments"


# ---------------------------------------------------------------- schemas that attack


async def test_a_regular_expression_bomb_is_answered_in_no_time() -> None:
    bombs = [r"^(a+)+$", r"^(a|a)*$", r"(.*a){25}x", r"^(?=(a+)+$).*b", r"^(a+)+(?!c)$", r"(x+x+)+y"]
    catalog = Catalog()
    for number, pattern in enumerate(bombs):
        schema = {"type": "object", "properties": {"v": {"type": "string", "pattern": pattern}}}
        catalog.register(ToolSpec(name=f"bomb_{number}", input_schema=schema), echo)
    catalog.snapshot()
    view = catalog.view(ANN)
    for number in range(len(bombs)):
        for text in ("a" * 50_000 + "!", "x" * 50_000):
            with within(50):
                await view.call(f"bomb_{number}", {"v": text})


async def test_a_reference_loop_ends() -> None:
    loops: list[Any] = [
        {"type": "object", "properties": {"v": {"$ref": "#/properties/v"}}},
        {"type": "object", "properties": {"v": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/b"},
         "b": {"$ref": "#/$defs/a"}}},
        {"type": "object", "allOf": [{"$ref": "#"}]},
        {"type": "object", "$dynamicAnchor": "x", "properties": {"v": {"$dynamicRef": "#x"}}},
    ]  # fmt: skip
    for schema in loops:
        catalog = Catalog()
        with within(50):
            try:
                catalog.register(ToolSpec(name="loop", input_schema=schema), echo)
            except CallError as error:
                assert (error.error.kind, "refers to itself" in str(error)) == ("schema_too_complex", True)
                continue
            except DefinitionError:
                continue
            assert kind_of(await catalog.view(ANN).call("loop", {"v": {"v": 1}})) in ("ok", "invalid_arguments")


async def test_a_recursive_schema_is_no_loop() -> None:
    tree: Any = {
        "type": "object", "properties": {"v": {"$ref": "#/$defs/node"}},
        "$defs": {"node": {"type": "object", "properties": {"kids": {"items": {"$ref": "#/$defs/node"}}}}},
    }  # fmt: skip
    catalog = Catalog()
    catalog.register(ToolSpec(name="tree", input_schema=tree), echo)
    view = catalog.view(ANN)
    assert kind_of(await view.call("tree", {"v": {"kids": [{"kids": []}]}})) == "ok"
    result = await view.call("tree", {"v": {"kids": [{"kids": [3]}]}})
    assert result.error is not None
    problems: Any = result.error.details["problems"]
    assert [item["path"] for item in problems] == ["$.v.kids[0].kids[0]"]


@pytest.fixture(name="listener")
def _listener() -> Iterator[tuple[str, list[str]]]:
    hits: list[str] = []

    class Count(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hits.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"type": "string"}')

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class says so
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Count)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", hits
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
async def test_a_remote_reference_is_refused_and_never_fetched(
    keyword: str, listener: tuple[str, list[str]], tmp_path: Path
) -> None:
    url, hits = listener
    secret = tmp_path / "secret.json"
    secret.write_text('{"type": "string"}')
    for target in (
        f"{url}/schema.json",
        f"{url}/schema.json#/$defs/a",
        secret.as_uri(),
        "other.json",
        "urn:x:y",
        "ftp://127.0.0.1/a",
    ):
        schema = {"type": "object", "properties": {"v": {keyword: target}}}
        with within(50), pytest.raises(DefinitionError):
            Catalog().register(ToolSpec(name="remote", input_schema=schema), echo)
    await asyncio.sleep(0)
    assert hits == []


def test_a_dialect_of_ones_own_is_never_fetched(listener: tuple[str, list[str]]) -> None:
    url, hits = listener
    for schema in ({"$schema": f"{url}/dialect"}, {"properties": {"v": {"$schema": f"{url}/dialect"}}}):
        with suppress(DefinitionError):
            Catalog().register(ToolSpec(name="dialect", input_schema={"type": "object", **schema}), echo)
    assert hits == []


async def test_an_id_does_not_make_a_reference_remote_nor_local(listener: tuple[str, list[str]]) -> None:
    url, hits = listener
    schema: Any = {"$id": f"{url}/root.json", "type": "object", "properties": {"v": {"$ref": "other.json"}}}
    with pytest.raises(DefinitionError):
        Catalog().register(ToolSpec(name="remote", input_schema=schema), echo)
    schema["$defs"] = {"other": {"$id": "other.json", "type": "integer"}}
    catalog = Catalog()
    catalog.register(ToolSpec(name="bundled", input_schema=schema), echo)
    assert kind_of(await catalog.view(ANN).call("bundled", {"v": "x"})) == "invalid_arguments"
    assert hits == []


def deep_schema(levels: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(levels - 1):
        schema = {"type": "object", "properties": {"k": schema}}
    return schema


def test_a_schema_may_be_32_levels_deep_and_have_2_000_subschemas() -> None:
    compile_schema(deep_schema(32))
    compile_schema({"type": "object", "properties": {str(number): {} for number in range(1_990)}})
    for schema in (
        deep_schema(34),
        {"type": "object", "properties": {str(number): {"type": "string"} for number in range(4_100)}},
        {"anyOf": [{"const": number} for number in range(4_100)]},
    ):
        with within(50), pytest.raises(CallError) as caught:
            Catalog().register(ToolSpec(name="large", input_schema=schema), echo)
        assert caught.value.error.kind == "schema_too_complex"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": 5, "default": [[[]]] * 300_000},
        {"enum": [f"v{number % 199_999}" for number in range(200_000)]},
        {"required": ["twice"] * 200_000},
        {"properties": {f"p{number}": True for number in range(200_000)}},
        {"x-notes": {"a": [None] * 19_998, "b": []}},
    ],
    ids=["lists", "options", "required", "names", "one too many"],
)
def test_a_schema_of_megabytes_is_refused_before_it_is_looked_at(schema: Any) -> None:
    with within(50), pytest.raises(CallError, match="more than 20,000 values") as caught:
        compile_schema(schema)
    assert caught.value.error.kind == "schema_too_complex"


def test_a_schema_may_be_written_of_20_000_values() -> None:
    assert compile_schema({"enum": list(range(19_999))}).is_valid(7)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "objekt"},
        {"type": "object", "properties": {"a": {"minimum": "3"}}},
        {"type": "object", "required": "a"},
        {"type": "object", "properties": {"a": {"pattern": "("}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/missing"}}},
        {"type": "object", "properties": [1]},
        {"type": "object", "properties": {"a": 3}},
    ],
)
def test_what_is_no_schema_is_refused_at_registration(schema: Any) -> None:
    with pytest.raises(DefinitionError, match="chema"):
        Catalog().register(ToolSpec(name="wrong", input_schema=schema), echo)


# ---------------------------------------------------------------- problems


@pytest.mark.parametrize(
    ("schema", "value", "paths"),
    [
        ({"required": ["a", "b"]}, {}, ["$.a", "$.b"]),
        ({"properties": {"a": {"items": {"type": "integer"}}}}, {"a": [1, "x", None]}, ["$.a[1]", "$.a[2]"]),
        ({"properties": {"a": {}}, "additionalProperties": False}, {"b": 1, "c d": 2}, ["$.b", '$["c d"]']),
        ({"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False}, {"b": 1}, ["$.b"]),
        ({"properties": {"a": {"enum": ["x"]}}}, {"a": "y"}, ["$.a"]),
        ({"properties": {"a": {"format": "date"}}}, {"a": "soon"}, ["$.a"]),
        ({"properties": {"a": {"anyOf": [{"type": "string"}, {"required": ["b"], "type": "object"}]}}},
         {"a": {}}, ["$.a.b"]),
        ({"properties": {"a": {"oneOf": [{"type": "string"}, {"type": "null"}]}}}, {"a": 3}, ["$.a"]),
        ({"properties": {"a": {"anyOf": [{"items": {"type": "integer"}, "type": "array"}, {"type": "null"}]}}},
         {"a": [1, "x"]}, ["$.a[1]"]),
        ({"propertyNames": {"pattern": "^x"}}, {"a": 1}, ["$"]),
        ({"minProperties": 1}, {}, ["$"]),
        ({"properties": {"a": False}}, {"a": 1}, ["$.a"]),
        ({"properties": {"a": {"uniqueItems": True}}}, {"a": [1, 1]}, ["$.a"]),
        ({"properties": {"a": {"minLength": 1}}}, {"a": ""}, ["$.a"]),
    ],
)  # fmt: skip
def test_each_problem_stands_at_its_own_place(schema: Any, value: Any, paths: list[str]) -> None:
    judge = compile_schema(schema)
    assert not judge.is_valid(value)
    assert sorted(problem.path for problem in judge.problems(value)) == sorted(paths)


def test_values_are_cut_to_80_characters_and_problems_to_50() -> None:
    judge = compile_schema({"items": {"type": "integer"}})
    problems = judge.problems(["x" * 1_000] * 200)
    assert len(problems) == 50
    assert {len(problem.value) for problem in problems} == {80}
    [whole] = compile_schema({"type": "string"}).problems([0] * 100_000)
    assert len(whole.value) <= 80
    assert all(len(problem.message) < 300 for problem in problems)


async def test_a_huge_wrong_value_is_not_repeated_in_the_message() -> None:
    view = one_tool(properties={"v": {"enum": ["a", "b"]}}).view(ANN)
    for value in ("x" * 100_000, [["x" * 50_000]], {"k" * 90_000: 1}):
        result = await view.call("echo", {"v": value})
        assert kind_of(result) == "invalid_arguments"
        assert len(repr(result)) < 3_000


@given(st.lists(st.text() | st.integers(0, 99), max_size=4))
def test_two_different_places_never_have_one_path(steps: list[str | int]) -> None:
    parts = re.findall(r'\.([A-Za-z_]\w*)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]', json_path(steps)[1:], flags=re.ASCII)
    back = [name or (int(index) if index else json.loads(quoted)) for name, index, quoted in parts]
    assert back == steps


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(Secret("abcdef"), id="str"),
        pytest.param(HTTPStatus.OK, id="int"),
        pytest.param([HTTPStatus.OK], id="nested"),
    ],
)
async def test_what_subclasses_a_json_type_is_no_crash(value: Any) -> None:
    for schema in ({}, {"type": ["string", "integer", "array"]}):
        result = await one_tool(properties={"v": schema}).view(ANN).call("echo", {"v": value})
        assert kind_of(result) in ("ok", "invalid_arguments")


def test_compiled_schemas_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    few = BoundedCache[tuple[str | None, int, int], schema_module.Compiled](max_entries=3)
    monkeypatch.setattr(schema_module, "_compiled", few)
    judges = [compile_schema({"const": number}) for number in range(10)]
    assert len(schema_module._compiled) <= 3
    assert [judge.is_valid(number) for number, judge in enumerate(judges)] == [True] * 10
    assert [compile_schema({"const": number}) is judges[number] for number in (9, 8, 7, 0)] == [True, True, True, False]
    assert not compile_schema(False).is_valid({})


@pytest.mark.parametrize("kind", ["boolean", ["boolean", "null"]])
def test_what_is_no_boolean_is_told_to_be_true_or_false(kind: Any) -> None:
    (problem,) = compile_schema({"properties": {"unique": {"type": kind}}}).problems({"unique": "yes"})
    assert (problem.path, problem.message[-21:]) == ("$.unique", ": write true or false")


async def test_the_error_of_an_enum_lists_up_to_20_of_its_values() -> None:
    for count, words in ((5, '"v0", "v1", "v2", "v3", "v4".'), (20, '"v19".'), (25, '"v19" and 5 more.')):
        view = one_tool(properties={"v": {"enum": [f"v{number}" for number in range(count)]}}).view(ANN)
        result = await view.call("echo", {"v": "w"})
        assert words in result.text, result.text


# ---------------------------------------------------------------- what a wrong name was meant to be


@pytest.mark.parametrize(
    ("args", "meant"),
    [
        ({"tekst": "a"}, {"$.tekst": "text"}),
        ({"TEXT": "a"}, {"$.TEXT": "text"}),
        ({"text": "a", "userId": 1}, {"$.userId": "user_id"}),
        ({"text": "a", "to": {"stret": "b"}}, {"$.to.stret": "street"}),
        ({"text": "a", "all": [{"street": "b"}, {"nummer": 1}]}, {"$.all[1].nummer": "number"}),
        ({"text": "a", "closed": {"deeep": 1}}, {"$.closed.deeep": "deep"}),
        ({"text": "a", "tekst": "b"}, {"$.tekst": None}),
        ({"text": "a", "quite_another": 1}, {"$.quite_another": None}),
        ({"text": "a", "user_idd" + "d" * 64: 1}, {"$.user_idd" + "d" * 64: None}),
        ({"text": "a", "u1": 1, "user_i": 1, "ser_id": 1, "usr_id": 1}, {"$.usr_id": None, "$.user_i": "user_id"}),
        ({"text": "a", "apart": {"tekst": 1}}, {"$.apart.tekst": None}),
    ],
)
async def test_a_misspelt_argument_is_told_what_was_probably_meant(args: Any, meant: dict[str, str | None]) -> None:
    place = {"type": "object", "properties": {"street": {}, "number": {}}, "additionalProperties": False}
    input_schema = {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "user_id": {},
            "to": {"anyOf": [{"$ref": "#/$defs/place"}, {"type": "null"}]},
            "all": {"type": "array", "items": {"$ref": "#/$defs/place"}},
            "closed": {"type": "object", "properties": {"deep": {}}, "unevaluatedProperties": False},
            "apart": {"$id": "apart", "type": "object", "$ref": "#/$defs/own", "$defs": {"own": {
                "properties": {"text": {}}, "additionalProperties": False}}},
        },
        "required": ["text"],
        "additionalProperties": False,
        "$defs": {"place": place},
    }  # fmt: skip
    catalog = Catalog()
    catalog.register(ToolSpec(name="echo", input_schema=input_schema), echo)
    result = await catalog.view(ANN).call("echo", args)
    assert result.error is not None
    problems: Any = result.error.details["problems"]
    told = {problem["path"]: problem["message"] for problem in problems}
    for path, name in meant.items():
        assert told[path].endswith("is not an argument here" if name is None else f"here (did you mean {name!r}?)")


def test_what_was_meant_is_found_quickly_whatever_the_names_are() -> None:
    names = ["".join("ab"[(i * k) % 7 > 3] for k in range(64)) + str(i) for i in range(1_000)]
    compiled = compile_schema(
        {"type": "object", "properties": {name: {} for name in names[:500]}, "additionalProperties": False}
    )
    wrong: dict[str, Any] = {name[:63]: 1 for name in names[500:]}
    compiled.problems(wrong)
    with within(50):
        compiled.problems(wrong)


async def test_the_first_wrong_item_of_a_long_list_is_named_where_listing_every_fault_would_take_too_long() -> None:
    catalog = one_tool(properties={"n": {"type": "array", "items": {"type": "integer"}}})
    result = await catalog.view(ANN).call("echo", {"n": [*range(2_000), "wrong"]})
    assert kind_of(result) == "invalid_arguments"
    assert "$.n[2000]" in result.text
