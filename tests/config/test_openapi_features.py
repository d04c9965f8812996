"""What few descriptions of 3.1 and 3.2 say: it stands so on the wire, or the operation is left out and told."""

from typing import Any

import pytest

from pegboard.sources.openapi.openapi_source import OpenApiSource
from tests.builtin.web import Asked, Site, as_json
from tests.config.api import asked, at, declared, get, post, project_of, spec
from tests.config.project import Project

STRING: dict[str, Any] = {"type": "string"}
PNG = {"type": "string", "contentMediaType": "image/png"}
SCHEMAS: dict[str, Any] = {
    "Tree": {
        "$id": "https://schemas.example/tree",
        "$dynamicAnchor": "tree",
        "type": "object",
        "required": ["n"],
        "properties": {"n": {"type": "integer"}, "below": {"type": "array", "items": {"$dynamicRef": "#tree"}}},
    },
    "Named": {"$anchor": "named", "type": "object", "properties": {"q": {"type": "integer"}}},
    "Twin": {"$anchor": "twin", "type": "integer"},
    "Twins": {"$anchor": "twin", "type": "string"},
    "Loop": {"$ref": "#/components/schemas/Loop"},
}
HERE = "#/components/schemas/"


def described(paths: dict[str, Any]) -> dict[str, Any]:
    shared = {"shared": get()}
    media = {"Asked": {"schema": {"type": "object", "properties": {"q": STRING}}}}
    components = {"schemas": SCHEMAS, "pathItems": shared, "mediaTypes": media}
    return spec(paths, version="3.2.0", components=components)


def body_of(reference: str, media: str = "application/json") -> dict[str, Any]:
    return post({"$ref": reference}, media=media)


def query(**content: Any) -> dict[str, Any]:
    return get({"name": "q", "in": "querystring", "content": content})


def file_or_null() -> dict[str, Any]:
    return {"type": "object", "properties": {"f": {"anyOf": [PNG, {"type": "null"}]}}}


# A path item, the arguments, and what arrives: method and target, or header, or body.
ON_THE_WIRE: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    # Parameters.
    ("/x", {"$ref": "#/components/pathItems/shared", "parameters": [at("query")]}, {"p": 1}, {"target": "/x?p=1"}),
    ("/x/{rest+}", get({"name": "rest", "in": "path"}), {"rest": "a/b c?d#e"}, {"target": "/x/a/b%20c%3Fd%23e"}),
    ("/x/{+rest}", get(), {"rest": "a/b"}, {"target": "/x/a/b"}),
    ("/x", get(at("path"), at("query")), {"p": "only"}, {"target": "/x?p=only"}),
    ("/x", {"parameters": [at("header")], **get(at("header", name="P"))}, {"P": "1"}, {"p": "1"}),
    ("/x", get({"name": "J", "in": "header", "content": {"application/json": {}}}), {"J": {"é": "\n"}},
     {"j": '{"\\u00e9":"\\n"}'}),
    ("/x", get(at("cookie", style="cookie")), {"p": {"a": "b=c", "d": "e; f=é"}},
     {"cookie": "a=b=c; d=e%3B%20f=%C3%A9"}),
    ("/x", get(at("query", style="deepObject")), {"p": [{"a": 1}, {"b": [2, 3]}]},
     {"target": "/x?p%5B0%5D%5Ba%5D=1&p%5B1%5D%5Bb%5D=2&p%5B1%5D%5Bb%5D=3"}),
    ("/x", query(**{"application/x-www-form-urlencoded": {}}), {"q": {"a b": 1, "c": [2, 3]}},
     {"target": "/x?a%20b=1&c=2&c=3"}),
    ("/x", query(**{"application/json": {}}), {"q": {"a": 1}}, {"target": "/x?%7B%22a%22%3A1%7D"}),
    ("/x", query(**{"text/plain": {}}), {"q": "a&b"}, {"target": "/x?a%26b"}),
    ("/x", query(**{"application/x-www-form-urlencoded": {}}), {"q": {}}, {"target": "/x"}),
    # Methods and bodies.
    ("/x", {"query": {"operationId": "ask", "requestBody": {"content": {
        "application/json": {"$ref": "#/components/mediaTypes/Asked"}}}}}, {"q": "x"},
     {"method": "QUERY", "body": b'{"q":"x"}'}),
    ("/x", body_of(HERE + "Tree"), {"n": 1, "below": [{"n": 2, "below": [{"n": 3}]}]},
     {"body": b'{"n":1,"below":[{"n":2,"below":[{"n":3}]}]}'}),
    ("/x", body_of("https://schemas.example/tree"), {"n": 1}, {"body": b'{"n":1}'}),
    ("/x", body_of("#named"), {"q": 1}, {"body": b'{"q":1}'}),
    ("/x", body_of("#twin"), {"body": [1]}, {"body": b"[1]"}),
    ("/x", body_of("other.yaml#/X"), {"body": {"any": 1}}, {"body": b'{"any":1}'}),
    ("/x", body_of("https://evil.example/x"), {"body": 1}, {"body": b"1"}),
    ("/x", body_of(HERE + "Loop"), {"body": 1}, {"body": b"1"}),
    ("/x", body_of("o.yaml", "application/x-www-form-urlencoded"), {"body": {"a": 1}}, {"body": b"a=1"}),
    ("/x", post({"type": "object", "properties": {"a": STRING}}, media="application/soap+xml"), {"body": "<a/>"},
     {"body": b"<a/>", "content-type": "application/soap+xml"}),
    ("/x", post({"type": "array", "items": {}}, media="application/x-ndjson"), {"body": [{"a": "é"}, "b"]},
     {"body": '{"a":"é"}\n"b"\n'.encode()}),
    ("/x", post({}, media="application/json-seq"), {"body": {"a": 1}}, {"body": b'\x1e{"a":1}\n'}),
    ("/x", {"post": {"operationId": "ask", "requestBody": {"content": {"application/jsonl": {"itemSchema": STRING}}}}},
     {"body": ["a", "b"]}, {"body": b'"a"\n"b"\n'}),
    ("/x", post(file_or_null(), media="multipart/form-data"), {"f": "AAA="},
     {"part": b"Content-Type: image/png\r\n\r\n\0\0"}),
    ("/x", post({"properties": {"f": {"type": "array", "items": PNG}}}, media="multipart/form-data"), {"f": ["AAA="]},
     {"part": b"Content-Type: image/png\r\n\r\n\0\0"}),
    ("/x", post(file_or_null(), media="multipart/form-data"), {"f": None}, {"part": b"--\r\n"}),
]  # fmt: skip


def seen(request: Asked, key: str) -> Any:
    if key in ("method", "target", "body"):
        return getattr(request, key)
    return request.headers.get(key)


async def test_on_the_wire_stands_what_the_document_says(project: Project) -> None:
    paths: dict[str, Any] = {}
    for number, (path, item, _, _) in enumerate(ON_THE_WIRE):
        paths[f"/{number}{path}"] = item
        for method in ("get", "post", "query"):
            if method in item:
                paths[f"/{number}{path}"] = item | {method: item[method] | {"operationId": f"op{number}"}}
    site = Site(lambda _: as_json({}))
    async with site.server() as server:
        view = project_of(project, described(paths), server.url).view(user="ann")
        names = view.names()
        assert len(names) == len(ON_THE_WIRE)
        for number, (name, (_, _, args, arrives)) in enumerate(zip(names, ON_THE_WIRE, strict=True)):
            result = await view.call(name, args)
            assert result.error is None, (number, result.error)
            request = site.asked[-1]
            request.target = request.target.removeprefix(f"/{number}")
            part = arrives.get("part", b"")
            assert part in request.body
            told = {key: value for key, value in arrives.items() if key != "part"}
            assert {key: seen(request, key) for key in told} == told, number


@pytest.mark.parametrize(
    ("item", "args", "place"),
    [
        (body_of(HERE + "Tree"), {"n": 1, "below": [{"n": 2, "below": [{"n": "three"}]}]}, "$.below[0].below[0].n"),
        (body_of("#named"), {"q": "one"}, "$.q"),
        (post({"type": "object"}, media="text/xml"), {"body": {"a": 1}}, "$.body"),
        ({"post": {"operationId": "ask", "requestBody": {"content": {"application/jsonl": {"itemSchema": STRING}}}}},
         {"body": ["a", 1]}, "$.body[1]"),
    ],
)  # fmt: skip
async def test_what_does_not_fit_is_refused_before_it_is_sent(
    project: Project, item: dict[str, Any], args: dict[str, Any], place: str
) -> None:
    view = project_of(project, described({"/": item}), "http://127.0.0.1:9").view(user="ann")
    result = await view.call("api__ask", args)
    assert result.error is not None
    assert result.error.kind == "invalid_arguments"
    assert place in result.error.message


async def test_the_rest_of_a_path_does_not_climb(project: Project) -> None:
    view = project_of(project, described({"/files/{rest+}": get()}), "http://127.0.0.1:9").view(user="ann")
    for rest in ("../admin", "a/../../admin", "a/.", ".."):
        result = await view.call("api__ask", {"rest": rest})
        assert result.error is not None
        assert result.error.kind == "invalid_arguments", rest


def test_methods_that_are_not_sent_are_told(project: Project) -> None:
    item = {**get(), "trace": {"operationId": "traced"}, "additionalOperations": {"COPY": {"operationId": "copied"}}}
    catalog = project_of(project, described({"/": item})).catalog()
    source = catalog.registry.sources["api"]
    assert isinstance(source, OpenApiSource)
    assert dict(source.rejected) == {
        "traced": "it is called with 'TRACE', which is not sent",
        "copied": "it is called with 'COPY', which is not sent",
    }


def test_a_query_only_reads(project: Project) -> None:
    assert declared(project, described({"/": {"query": {"operationId": "ask"}}})).annotations.read_only is True


async def test_a_list_in_an_exploded_object_repeats_its_name(project: Project) -> None:
    page = {"type": "object", "properties": {"size": {"type": "integer"}, "sort": {"type": "array", "items": {}}}}
    request = await asked(project, spec({"/": get(at("query", page))}), {"p": {"size": 2, "sort": ["a", "b"]}})
    assert request.target == "/?size=2&sort=a&sort=b"
