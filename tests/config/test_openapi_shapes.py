"""Descriptions of APIs as the world has them, and as nobody should: each is read, or refused with a reason."""

import asyncio
import json
from typing import Any

import pytest

from pegboard.config.kinds.openapi import description_value
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.error import DefinitionError
from pegboard.sources.openapi.openapi_source import ApiSettings, OpenApiSource
from tests.builtin.web import Site, answer
from tests.config.api import asked, at, declared, get, post, spec
from tests.config.project import Project

HUGE = 10**30


def taken(description: Any, *, base_url: str | None = "https://api.example.com") -> OpenApiSource:
    text = description if isinstance(description, str) else json.dumps(description)
    source = OpenApiSource(
        ApiSettings(name="api", base_url=base_url, read=lambda said: description_value(said, bounds=DEFAULT_BOUNDS))
    )
    source.take(text)
    return source


def query(schema: Any, **more: Any) -> dict[str, Any]:
    return get({"name": "p", "in": "query", "schema": schema} | more)


SHAPES: dict[str, Any] = {
    "paths are a list": spec([]),  # type: ignore[arg-type] - that is the fault
    "a path is null": spec({"/": None}),
    "an operation is null": spec({"/": {"get": None}}),
    "a path refers to itself": spec({"/": {"$ref": "#/paths/~1"}}),
    "parameters are null": spec({"/": {"get": {"parameters": None}}}),
    "parameters are an object": spec({"/": {"get": {"parameters": {"a": 1}}}}),
    "a parameter is null": spec({"/": get(None)}),  # type: ignore[arg-type] - that is the fault
    "a parameter's name is an object": spec({"/": get({"name": {}, "in": "query"})}),
    "a parameter's place is an object": spec({"/": get({"name": "p", "in": {}})}),
    "a parameter's style is an object": spec({"/": query({}, style={})}),
    "a parameter's content is empty": spec({"/": get({"name": "p", "in": "query", "content": {}})}),
    "a parameter's content is null": spec(
        {"/": get({"name": "p", "in": "query", "content": {"application/json": None}})}
    ),
    "a chain of references": spec(
        {"/": get({"$ref": "#/components/p0"})},
        components={f"p{n}": {"$ref": f"#/components/p{n + 1}"} for n in range(30)},
    ),
    "a schema is null": spec({"/": query(None)}),
    "a schema is a list": spec({"/": query([1])}),
    "a type is a number": spec({"/": query({"type": ["string", 5]})}),
    "a reference is a number": spec({"/": query({"$ref": 5})}),
    "a reference to everything": spec({"/": query({"$ref": "#"})}),
    "a reference to the paths": spec({"/": query({"$ref": "#/paths"})}),
    "an enum is a number": spec({"/": query({"enum": 5, "nullable": True})}, version="3.0.0"),
    "properties are null": spec({"/": post({"type": "object", "properties": None})}),
    "a property is a number": spec({"/": post({"type": "object", "properties": {"a": 5}})}),
    "required is a text": spec({"/": post({"type": "object", "properties": {"a": {}}, "required": "a"})}),
    "required has an object": spec(
        {"/": post({"type": "object", "properties": {"a": {"readOnly": True}}, "required": [{}]})}
    ),
    "required on the property": spec({"/": post({"type": "object", "properties": {"a": {"required": True}}})}),
    "a number nobody can hold": spec({"/": query({"type": "integer", "maximum": 10**400})}),
    "a body is a list": spec({"/": {"post": {"requestBody": []}}}),
    "a body without content": spec({"/": {"post": {"requestBody": {}}}}),
    "a body's content is null": spec({"/": {"post": {"requestBody": {"content": None}}}}),
    "a body's media type is null": spec({"/": {"post": {"requestBody": {"content": {"application/json": None}}}}}),
    "a body's schema is null": spec({"/": post(None)}),  # type: ignore[arg-type] - that is the fault
    "responses are a list": spec({"/": get(responses=[])}),
    "a response is a list": spec({"/": get(responses={"200": []})}),
    "a response's content is null": spec({"/": get(responses={"200": {"content": {"application/json": None}}})}),
    "servers are null": spec({"/": get()}, servers=None),
    "a server is null": spec({"/": get()}, servers=[None]),
    "a server's url is a number": spec({"/": get()}, servers=[{"url": 5}]),
    "a server is half a URL": spec({"/": get()}, servers=[{"url": "https://[::1"}]),
    "a server has an odd character": spec({"/": get()}, servers=[{"url": "https://a\u2100b.example"}]),
    "a variable is a list": spec({"/": get()}, servers=[{"url": "https://{h}", "variables": {"h": {"default": []}}}]),
    "a variable leads elsewhere": spec(
        {"/": get()}, servers=[{"url": "https://{h}.example.com", "variables": {"h": {"default": "evil.example/#"}}}]
    ),
    "an operation's server is half a URL": spec({"/": get(servers=[{"url": "https://[bad"}])}),
    "an id is a number": spec({"/": get(operationId=5)}),
    "an id of a million characters": spec({"/": get(operationId="x" * 1_000_000)}),
    "schemas in schemas": spec(
        {"/": query({"$ref": "#/components/schemas/S0"})},
        components={
            "schemas": {f"S{n}": {"allOf": [{"$ref": f"#/components/schemas/S{n + 1}"}] * 2} for n in range(60)}
        },
    ),
    "10,000 parameters": spec({"/": get(*({"name": f"p{n}", "in": "query", "schema": {}} for n in range(10_000)))}),
    "aliases of aliases": "openapi: 3.0.0\na: &a [1,1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
    "c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]",
    "brackets": '{"openapi":' + "[" * 100_000,
    "nothing": "",
    "a web page": "<!doctype html><html></html>",
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("base_url", ["https://api.example.com", None])
def test_whatever_a_description_says_it_is_read_or_refused_with_a_reason(shape: str, base_url: str | None) -> None:
    try:
        source = taken(SHAPES[shape], base_url=base_url)
    except DefinitionError as error:
        assert 10 < len(str(error)) < 500
    else:
        # Where all was left out, each operation has a reason.
        assert source.entries() or all(10 < len(reason) < 500 for _, reason in source.rejected)


async def test_a_description_of_any_shape_behind_a_url_keeps_nobody_waiting() -> None:
    async def sleep(seconds: float) -> None:
        await asyncio.Event().wait()

    for shape in ("required has an object", "a server is half a URL", "a number nobody can hold", "nothing"):
        body = json.dumps(SHAPES[shape]).encode()
        async with Site(lambda _, body=body: answer(body)).server() as server:
            settings = ApiSettings(
                name="api", spec=server.url, read=lambda text: description_value(text, bounds=DEFAULT_BOUNDS)
            )
            source = OpenApiSource(settings, sleep=sleep)
            await source.start()
            async with asyncio.timeout(60):
                await source.listed()
            await source.stop()
        assert source.state().is_up or source.state().reason


def test_extensions_between_the_paths_are_no_operations() -> None:
    source = taken(spec({"x-notes": {"get": {"operationId": "no"}}, "/": get()}))
    assert ([entry.spec.name for entry in source.entries()], source.rejected) == (["ask"], ())


@pytest.mark.parametrize("version", ["3.0.3", "3.1.0"])
def test_the_words_of_3_0_are_read_in_either_version(project: Project, version: str) -> None:
    schema = {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "nullable": True}
    drawn = declared(project, spec({"/": query(schema)}, version=version)).input_schema["properties"]["p"]
    assert drawn == {"type": ["integer", "null"], "exclusiveMinimum": 0}


def test_bounds_of_more_than_64_bits_are_the_numbers_that_most_readers_make_of_them(project: Project) -> None:
    schema = {"type": "integer", "minimum": -9_223_372_036_854_776_000, "maximum": HUGE, "default": 2**64 - 1}
    spec_of = declared(project, spec({"/": query(schema)}))
    assert spec_of.input_schema["properties"]["p"] == {
        "type": "integer", "minimum": -9.223372036854776e18, "maximum": 1e30, "default": 2**64 - 1,
    }  # fmt: skip


@pytest.mark.parametrize("hidden", [{"enum": ["a\u200bb"]}, {"default": {"a\u202eb": 1}}, {"examples": [["\u2066x"]]}])
def test_invisible_characters_reach_nobody_wherever_they_stand(hidden: dict[str, Any]) -> None:
    [entry] = taken(spec({"/": query({"type": "string"} | hidden)})).entries()
    assert entry.spec.input_schema["properties"]["p"] == {"type": "string"}


def test_a_property_with_invisible_characters_is_not_offered_and_where_it_is_required_the_operation_is_not() -> None:
    body = {"type": "object", "properties": {"a": {}, "b\u200b": {}}}
    [entry] = taken(spec({"/": query(body)})).entries()
    assert list(entry.spec.input_schema["properties"]["p"]["properties"]) == ["a"]
    source = taken(spec({"/": query(body | {"required": ["b\u200b"]})}))
    assert source.rejected[0].reason == "its schemas demand a name with invisible characters, 'b'"


async def test_integers_of_any_length_are_sent_as_they_are(project: Project) -> None:
    parameters = [at("query", name="q"), at("header", name="X-Big")]
    body = {"type": "object", "properties": {"n": {"type": "integer"}}}
    request = await asked(
        project, spec({"/": post(body, parameters=parameters)}), {"q": HUGE, "X-Big": HUGE, "n": HUGE}
    )
    assert (request.target, request.headers["x-big"], request.body) == (
        f"/?q={HUGE}", str(HUGE), b'{"n":%d}' % HUGE,
    )  # fmt: skip


async def test_a_fixed_query_string_of_a_path_is_sent(project: Project) -> None:
    path = {"parameters": [at("path")], **get(at("query", name="q"))}
    request = await asked(project, spec({"/v1/{p}/x?beta=true": path}), {"p": "a?b", "q": "c"})
    assert request.target == "/v1/a%3Fb/x?beta=true&q=c"
