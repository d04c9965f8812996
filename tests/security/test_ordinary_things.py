"""Ordinary things of the kinds that attacks resemble go through: schemas, results, names, files, headers and keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pegboard import Catalog, TextContent, ToolContext, ToolResult, ToolSpec, http_app
from pegboard.model.json_types import JSON
from pegboard.sources.builtin.kind import Services
from pegboard.sources.foreign_text import cleaned, has_hidden
from pegboard.sources.mcp.definition_changes import classify
from pegboard.workspace.shown_names import can_be_shown
from tests.builtin.parts import Shelf
from tests.server.doors import names, post, served, workshop
from tests.upstream_mcp.parts import on_stdio, running, view_of
from tests.upstream_mcp.test_foreign_metadata import TELLING, telling

TEXT: JSON = {"type": "string"}


def closed(inner: JSON, name: str) -> JSON:
    """An object that extends another, and is closed."""
    return {"allOf": [inner, {"properties": {name: TEXT}}], "unevaluatedProperties": False, "type": "object"}


def zip_rule(number: int) -> JSON:
    return {
        "if": {"properties": {"country": {"const": f"C{number}"}}, "required": ["country"]},
        "then": {"properties": {"zip": {"pattern": f"^[0-9]{{{3 + number % 5}}}$"}}},
    }


def node(depth: int) -> JSON:
    return {"name": "n", "children": [node(depth - 1) for _ in range(4)] if depth else []}


RECORD: JSON = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "format": "uuid"},
        "email": {"type": "string", "format": "email"},
        "at": {"type": "string", "format": "date-time"},
        "amount": {"type": "number", "minimum": 0},
        "status": {"enum": ["open", "paid", "void"]},
    },
    "required": ["id"],
    "additionalProperties": False,
}
ROW: JSON = {
    "id": "123e4567-e89b-12d3-a456-426614174000",
    "email": "ann@example.org",
    "at": "2026-01-01T10:00:00Z",
    "amount": 12.5,
    "status": "paid",
}
POINT: JSON = {"prefixItems": [{"minimum": -180, "maximum": 180}, {"minimum": -90, "maximum": 90}]}
EVENTS: JSON = {
    "oneOf": [
        {"type": "object", "properties": {"kind": {"const": f"k{n}"}, "data": {"type": "object"}}, "required": ["kind"]}
        for n in range(40)
    ]
}
FILTER: JSON = {
    "oneOf": [
        *(
            {
                "type": "object",
                "properties": {word: {"type": "array", "items": {"$ref": "#/$defs/filter"}}},
                "required": [word],
                "additionalProperties": False,
            }
            for word in ("and", "or")
        ),
        {
            "type": "object",
            "properties": {"field": TEXT, "is": True},
            "required": ["field"],
            "additionalProperties": False,
        },
    ]
}
TREE: JSON = {
    "type": "object",
    "properties": {"name": TEXT, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
}
SCHEMAS: dict[str, tuple[JSON, Any, JSON]] = {
    # what it is: the schema of `value`, the value, and what stands under $defs
    "three closed levels": (closed(closed(closed({"type": "object"}, "a"), "b"), "c"), {"a": "x"}, {}),
    "2,000 records with formats": ({"type": "array", "items": RECORD}, [ROW] * 2_000, {}),
    "a polygon of 10,000 places": (
        {"properties": {"type": {"const": "Polygon"}, "coordinates": {"items": {"items": POINT}}}},
        {"type": "Polygon", "coordinates": [[[n / 60.7 - 80, n / 101.3 - 40] for n in range(10_000)]]},
        {},
    ),
    "500 events of 40 kinds": (
        {"type": "array", "items": EVENTS},
        [{"kind": f"k{n % 40}", "data": {}} for n in range(500)],
        {},
    ),
    "a nested filter": (
        {"$ref": "#/$defs/filter"},
        {"and": [{"or": [{"field": "a", "is": 1}]}] * 40},
        {"filter": FILTER},
    ),
    "a tree of 1,365 nodes": ({"$ref": "#/$defs/node"}, node(5), {"node": TREE}),
    "60 rules for zip codes": (
        {"type": "object", "properties": {"country": TEXT, "zip": TEXT}, "allOf": [zip_rule(n) for n in range(60)]},
        {"country": "C3", "zip": "123456"},
        {},
    ),
    "250 countries": ({"type": "array", "items": {"enum": [f"C{n}" for n in range(250)]}}, ["C7"] * 5_000, {}),
    "3,000 different ids": (
        {"type": "array", "uniqueItems": True, "items": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4,8}$"}},
        [f"ABC-{n:06}" for n in range(3_000)],
        {},
    ),
    "5,000 e-mail addresses": (
        {"type": "array", "items": {"type": "string", "pattern": r"^[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}$"}},
        [f"user{n}@mail.example.org" for n in range(5_000)],
        {},
    ),
    "500,000 characters without tags": ({"type": "string", "pattern": "^[^<>]*$"}, "word " * 100_000, {}),
    "a file of 1 MB in base64": ({"type": "string", "pattern": "^[A-Za-z0-9+/]*={0,2}$"}, "QUJD" * 250_000, {}),
    "headers of one's own": (
        {"type": "object", "patternProperties": {"^x-[a-z-]+$": {}}, "additionalProperties": TEXT},
        {f"key{n}": "v" for n in range(2_000)},
        {},
    ),
    "prices with two decimals": ({"type": "array", "items": {"multipleOf": 0.01}}, [n / 100 for n in range(1_000)], {}),
    "a name of a person": (
        {"type": "string", "pattern": r"^[\p{L}\p{M}][\p{L}\p{M}'’ .-]{0,99}$"},
        "Ngũgĩ wa Thiong'o",
        {},
    ),
    "ids of 19 digits": ({"type": "array", "items": {"type": "integer"}}, [1_234_567_890_123_456_789] * 1_000, {}),
    "any JSON": (
        {"$ref": "#/$defs/any"},
        [{"a": n, "b": ["x", None]} for n in range(2_000)],
        {
            "any": {
                "anyOf": [
                    {"type": ["string", "number", "boolean", "null"]},
                    {"type": "array", "items": {"$ref": "#/$defs/any"}},
                    {"type": "object", "additionalProperties": {"$ref": "#/$defs/any"}},
                ]
            }
        },
    ),
}


@pytest.mark.parametrize("what", SCHEMAS)
async def test_a_schema_as_public_apis_have_it_takes_its_values(what: str) -> None:
    schema, value, definitions = SCHEMAS[what]
    catalog = Catalog()
    received: list[Any] = []
    whole: JSON = {"type": "object", "properties": {"value": schema}, "required": ["value"], "$defs": definitions}
    catalog.register(ToolSpec(name="take", input_schema=whole), lambda ctx, args: received.append(args["value"]))
    result = await catalog.view(ToolContext()).call("take", {"value": value})
    assert result.error is None, result.error
    assert received == [value]


PEOPLE_AND_PLACES = (
    "O'Brien",
    "D’Angelo",
    "Zoë Łódź",
    "e\u0301cole",
    "Ngũgĩ wa Thiong'o",
    "Hawaiʻi",
    "中村 太郎",
    "\U00020bb7野家",
    "Αθήνα",
    "İstanbul",
    "محمد بن سلمان",
    "می\u200cخواهم",
    "ירושלים",
    "नई दिल्ली",
    "क\u094d\u200dष",
    "ന\u0d28\u0d4d\u200dമ",
    "ශ\u0dca\u200dරී ලංකා",
    "👩🏽\u200d🚀 crew",
    "❤\ufe0f\u200d🔥",
    "⚠\ufe0f care",
    "1\ufe0f\u20e3",
    "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",
    "\U0001fae8 new",
    "آیه \u06dd",
    "null",
    "constructor",
    "Robert'); DROP TABLE",
)


@pytest.mark.parametrize("name", PEOPLE_AND_PLACES)
async def test_a_name_of_a_person_or_place_goes_through_every_door_unchanged(name: str) -> None:
    catalog = Catalog()

    @catalog.tool
    def greet(name: str, tags: dict[str, str]) -> dict[str, object]:
        """Greet."""
        return {"greeting": name, **tags}

    result = await catalog.view(ToolContext()).call("greet", {"name": name, "tags": {name: name}})
    assert result.structured == {"greeting": name, name: name}
    assert can_be_shown(name)
    assert not has_hidden(name)
    assert cleaned(f"About {name}.") == f"About {name}."


async def test_an_upstream_server_may_name_people_and_places(tmp_path: Path) -> None:
    tools = [
        {
            "name": f"tool{number}",
            "title": name,
            "description": f"About {name}.",
            "inputSchema": {"type": "object", "properties": {"where": {"enum": [name]}, name: TEXT}},
        }
        for number, name in enumerate(PEOPLE_AND_PLACES)
    ]
    file = telling(tmp_path, {"tools": tools, "result": {"content": [{"type": "text", "text": "done"}]}})
    async with running(on_stdio(TELLING, str(file))) as (catalog, source):
        assert list(source.rejected) == []
        view = view_of(catalog)
        assert len(view.names()) == len(PEOPLE_AND_PLACES)
        for number, name in enumerate(PEOPLE_AND_PLACES):
            assert view[f"up__tool{number}"].spec.description == f"About {name}."
            assert (await view.call(f"up__tool{number}", {"where": name, name: "x"})).text == "done"


async def test_an_upstream_server_may_write_bounds_as_earlier_drafts_do(tmp_path: Path) -> None:
    bounds: JSON = {
        "above": {"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 9, "exclusiveMaximum": False},
        "properties": {"properties": {"exclusiveMinimum": True, "minimum": TEXT}},
    }
    tools = [
        {"name": "old", "inputSchema": {"type": "object", "properties": bounds}},
        {"name": "odd", "inputSchema": {"type": "object", "properties": {"a": {"minLength": "one"}}}},
    ]
    file = telling(tmp_path, {"tools": tools, "result": {"content": [{"type": "text", "text": "done"}]}})
    async with running(on_stdio(TELLING, str(file))) as (catalog, source):
        (odd,) = source.rejected
        assert "$.properties.a.minLength: the value is not of type" in odd.reason
        view = view_of(catalog)
        assert (await view.call("up__old", {"above": 9, "properties": {"exclusiveMinimum": 1}})).text == "done"
        assert (await view.call("up__old", {"above": 0})).is_error


async def test_an_upstream_server_may_say_nullable_as_openapi_does(tmp_path: Path) -> None:
    named: JSON = {"$ref": "#/$defs/named", "nullable": True}
    properties: JSON = {
        "text": {"type": "string", "nullable": True},
        "kind": {"type": "string", "enum": ["a"], "nullable": True},
        "named": named,
        "plain": {"type": "string", "nullable": False},
        "nullable": {"type": "boolean"},
    }
    schema: JSON = {
        "type": "object", "nullable": True, "properties": properties, "$defs": {"named": {"type": "object"}},
    }  # fmt: skip
    tools = [{"name": "find", "inputSchema": schema, "outputSchema": schema}]
    answer: JSON = {"text": None, "kind": None, "named": None, "plain": "x", "nullable": True}
    file = telling(tmp_path, {"tools": tools, "result": {"content": [], "structuredContent": answer}})
    async with running(on_stdio(TELLING, str(file))) as (catalog, _):
        view = view_of(catalog)
        assert (await view.call("up__find", answer)).structured == answer
        refused = await view.call("up__find", {"plain": None, "nullable": None})
        assert "$.plain" in refused.text
        assert "$.nullable" in refused.text


async def test_values_in_the_schema_of_an_upstream_server_stay_as_they_are(tmp_path: Path) -> None:
    bound: JSON = {"minimum": 0, "exclusiveMinimum": True, "nullable": True, "description": "a\r\nb"}
    properties: JSON = {
        "fixed": {"const": bound},
        "chosen": {"enum": [bound]},
        "default": {"type": "object", "default": bound, "examples": [bound], "description": "a\r\nb"},
    }
    tools = [
        {"name": "keep", "inputSchema": {"type": "object", "properties": properties}},
        {"name": "hide", "inputSchema": {"type": "object", "default": {"description": "a\u200bb"}}},
    ]
    file = telling(tmp_path, {"tools": tools, "result": {"content": [{"type": "text", "text": "done"}]}})
    async with running(on_stdio(TELLING, str(file))) as (catalog, source):
        (hidden,) = source.rejected
        assert "invisible characters" in hidden.reason
        view = view_of(catalog)
        assert (await view.call("up__keep", {"fixed": bound, "chosen": bound})).text == "done"
        shown: Any = view.schema("up__keep")["properties"]["default"]
        assert (shown["default"], shown["examples"]) == (bound, [bound])


@pytest.mark.parametrize("name", PEOPLE_AND_PLACES)
def test_a_definition_that_begins_to_name_somebody_hides_nothing(name: str) -> None:
    before: JSON = {"name": "send", "description": "Send.", "inputSchema": {"type": "object"}}
    assert classify(before, {**before, "description": f"Send to {name}."}) == ("cosmetic",)


@pytest.mark.parametrize(
    "hiding",
    [
        "a\u200bb",
        "a\u200db",
        "x\u200cy",
        "A\ufe0f",
        "⚠\ufe0f\ufe0f",
        "م\u200c\u200cخ",
        "\u202eevil",
        "🙂\ufe00\ufe01",
        "abc\u200d🙂",
        "🏴\U000e0073\U000e0065\U000e0063\U000e007f",
        "\U000e0041\U000e0042",
        "क\u200b",
        "न\u094d\u200d\u200d",
        "\u2066a\u2069",
        "\ue000",
    ],
)
def test_what_hides_text_is_still_found_and_taken_out(hiding: str) -> None:
    assert has_hidden(hiding)
    assert not has_hidden(cleaned(hiding))


RESULTS: dict[str, Any] = {
    "900,000 characters": "word " * 180_000,
    "a log with colours": "\x1b[31mERROR\x1b[0m it failed\r\n\tat main",
    "a template": "Hello {{ name }} and ${HOME} and %(x)s and {0}",
    "HTML": '<script>alert(1)</script><!-- it\'s "quoted" & more -->',
    "a query": "SELECT * FROM users WHERE name = 'O''Brien'; -- all",
    "a path": "../../etc/passwd, C:\\Windows\\System32, file:///tmp/x",
    "ciphers and hashes": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 QUJDREVGRw==",
    "words about secrets": {"password": "hunter2", "token": None, "api_key": "", "authorization": "Bearer x"},
    "keys that look like rules": {"$ref": "#/a", "$schema": "x", "type": "object", "properties": {}, "@id": 1, "": 2},
    "keys of programs": {"__proto__": {}, "constructor": 1, "__class__": "x", "toString": 2, "a.b": 3, "key[0]": 4},
    "numbers": [0, -0.0, 1e308, 5e-324, 0.1, 1_234_567_890_123_456_789, 2**64, -(2**63)],
    "30 levels": json.loads("[" * 30 + "]" * 30),
}


@pytest.mark.parametrize("what", RESULTS)
async def test_an_ordinary_result_comes_back_as_it_is(what: str) -> None:
    catalog = Catalog()
    catalog.register(ToolSpec(name="give"), lambda ctx, args: RESULTS[what])
    result = await catalog.view(ToolContext()).call("give")
    assert result.error is None, result.error
    assert (result.text if isinstance(RESULTS[what], str) else result.structured) in (
        RESULTS[what],
        {"result": RESULTS[what]},
    )


async def test_a_thousand_blocks_come_back(tmp_path: Path) -> None:
    catalog = Catalog()
    blocks = tuple(TextContent(f"block {number}") for number in range(1_000))
    catalog.register(ToolSpec(name="give"), lambda ctx, args: ToolResult(content=blocks))
    assert (await catalog.view(ToolContext()).call("give")).content == blocks


async def test_a_result_of_2_mb_is_refused_by_the_name_of_its_setting() -> None:
    catalog = Catalog()
    catalog.register(ToolSpec(name="give"), lambda ctx, args: "x" * 2_000_000)
    assert "`limits.result_bytes`" in (await catalog.view(ToolContext()).call("give")).text


FILES = (
    "notes.txt",
    "Résumé (final).md",
    "report..final.txt",
    "...txt",
    ".gitignore",
    "-rf",
    "~backup",
    "100%.txt",
    "a&b;c.txt",
    'it\'s "quoted".txt',
    "con.txt",
    "日本語.txt",
    "می\u200cخواهم.txt",
    "e\u0301cole.txt",
    "👩🏽\u200d🚀.txt",
    "a b  c.txt",
    "$HOME.txt",
    "${x}.txt",
    "{{x}}.txt",
    "#1.txt",
    "key=value.txt",
    "deep/folder/of/files.txt",
)


@pytest.mark.parametrize("path", FILES)
async def test_a_file_with_an_ordinary_name_is_written_and_read(tmp_path: Path, path: str) -> None:
    (tmp_path / "data" / path).parent.mkdir(parents=True)
    shelf = Shelf(services=Services(folder=tmp_path))
    shelf.put("read_file", {"roots": ["data"]}).put("write_file", {"roots": ["data"], "write_hidden": True})
    await shelf.value("write_file", {"path": path, "content": "text"})
    assert (tmp_path / "data" / path).read_text() == "text"
    assert "text" in str(await shelf.value("read_file", {"path": path}))


async def test_a_hidden_file_is_refused_by_the_name_of_its_setting(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    shelf = Shelf(services=Services(folder=tmp_path)).put("write_file", {"roots": ["data"]})
    assert "`write_hidden`" in (await shelf.error("write_file", {"path": ".gitignore", "content": "x"})).message


HEADERS: dict[str, dict[str, str]] = {
    "a browser": {
        "user-agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0",
        "accept-language": "de-CH,de;q=0.9,en;q=0.8",
        "sec-ch-ua": '"Chromium";v="130", "Not?A_Brand";v="99"',
        "sec-fetch-mode": "cors",
        "dnt": "1",
        "priority": "u=1, i",
    },
    "tracing": {
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "rojo=00f067aa0ba902b7,congo=t61",
        "x-request-id": "abc/def==",
        "x-b3-traceid": "80f198ee56343ba864fe8b2a57d3eff7",
        "baggage": "userId=al%C3%AFce,serverNode=DF%2028",
    },
    "a proxy": {
        "via": "1.1 vegur, 1.0 fred",
        "x-forwarded-for": "203.0.113.7, 10.0.0.1",
        "forwarded": 'for="[2001:db8::1]";proto=https',
        "x-real-ip": "203.0.113.7",
        "x-envoy-attempt-count": "1",
        "cf-ray": "8f1-ZRH",
    },
    "cookies of 6 KB": {"cookie": "; ".join(f"c{number}={'v' * 50}" for number in range(110))},
    "60 headers": {f"x-header-{number}": "value" for number in range(60)},
    "caching": {"if-none-match": 'W/"67ab43", "54ed21"', "cache-control": "no-cache, max-age=0", "pragma": "no-cache"},
    "an empty value": {"x-empty": ""},
    "latin text": {"x-city": "Z\u00fcrich"},
}


@pytest.mark.parametrize("what", HEADERS)
async def test_a_request_with_ordinary_headers_is_answered(what: str) -> None:
    headers = [(name.encode(), value.encode("latin-1")) for name, value in HEADERS[what].items()]
    async with served(http_app(workshop()[0])) as url, httpx2.AsyncClient(base_url=url, headers=headers) as client:
        assert "add" in await names(client)
        assert (await post(client, "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})).status_code == 200
