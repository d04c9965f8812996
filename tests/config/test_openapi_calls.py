"""An API from YAML: what its tools send and take of the answer, and descriptions behind a URL."""

import asyncio
from typing import Any

import pytest

from pegboard import Catalog
from pegboard.config import context_for
from pegboard.config.kinds.openapi import description_value
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.sources.openapi.openapi_source import ApiSettings, OpenApiSource
from tests.builtin.web import Asked, Site, answer, as_json, page
from tests.config.api import PET, asked, at, declared, get, post, project_of, spec
from tests.config.project import Project
from tests.core.parts import ANN
from tests.egress.loopback import RawServer

# ---------------------------------------------------------------- what is sent


LIST, OBJECT = ["a b", "c/d"], {"k": "v w", "n": 1}


@pytest.mark.parametrize(
    ("parameter", "value", "target"),
    [
        (at("path"), "a/../b?c#d", "/x/a%2F..%2Fb%3Fc%23d"),
        (at("path"), LIST, "/x/a%20b,c%2Fd"),
        (at("path"), OBJECT, "/x/k,v%20w,n,1"),
        (at("path", explode=True), OBJECT, "/x/k=v%20w,n=1"),
        (at("path", style="label"), LIST, "/x/.a%20b,c%2Fd"),
        (at("path", style="label", explode=True), LIST, "/x/.a%20b.c%2Fd"),
        (at("path", style="matrix"), LIST, "/x/;p=a%20b,c%2Fd"),
        (at("path", style="matrix", explode=True), LIST, "/x/;p=a%20b;p=c%2Fd"),
        (at("path", style="matrix", explode=True), OBJECT, "/x/;k=v%20w;n=1"),
        (at("query"), "a&b=c", "/x/{p}?p=a%26b%3Dc"),
        (at("query"), True, "/x/{p}?p=true"),
        (at("query"), LIST, "/x/{p}?p=a%20b&p=c%2Fd"),
        (at("query", explode=False), LIST, "/x/{p}?p=a%20b,c%2Fd"),
        (at("query", style="pipeDelimited", explode=False), LIST, "/x/{p}?p=a%20b%7Cc%2Fd"),
        (at("query", style="spaceDelimited", explode=False), LIST, "/x/{p}?p=a%20b%20c%2Fd"),
        (at("query"), OBJECT, "/x/{p}?k=v%20w&n=1"),
        (at("query", explode=False), OBJECT, "/x/{p}?p=k,v%20w,n,1"),
        (at("query", style="deepObject"), {"a": {"b": [1, 2]}}, "/x/{p}?p%5Ba%5D%5Bb%5D=1&p%5Ba%5D%5Bb%5D=2"),
        (at("query", allowReserved=True), "a/b:c&d", "/x/{p}?p=a/b:c%26d"),
        ({"name": "p", "in": "query", "content": {"application/json": {"schema": {}}}},
         {"a": 1}, "/x/{p}?p=%7B%22a%22%3A1%7D"),
    ],
)  # fmt: skip
async def test_a_parameter_is_written_as_its_style_says(
    project: Project, parameter: dict[str, Any], value: Any, target: str
) -> None:
    path = "/x/{p}" if parameter["in"] == "path" else "/x/z"
    request = await asked(project, spec({path: get(parameter)}), {"p": value}, path="/v1/")
    assert request.target == "/v1" + target.replace("{p}", "z")


async def test_headers_and_cookies_carry_their_parameters(project: Project) -> None:
    parameters = [
        {"name": "X-Tags", "in": "header", "schema": {}},
        {"name": "sid", "in": "cookie", "schema": {}},
        {"name": "sid", "in": "header", "schema": {}},
        {"name": "Authorization", "in": "header", "schema": {}},
        {"name": "Host", "in": "header", "schema": {}},
    ]
    description = spec({"/": get(*parameters)})
    assert list(declared(project, description).input_schema["properties"]) == ["X-Tags", "sid", "sid_cookie"]
    request = await asked(project, description, {"X-Tags": ["a", 1], "sid": "h", "sid_cookie": "a;b c"})
    assert (request.headers["x-tags"], request.headers["sid"], request.headers["cookie"]) == (
        "a,1",
        "h",
        "sid=a%3Bb%20c",
    )


@pytest.mark.parametrize(
    ("body", "more", "args", "sent"),
    [
        ({"type": "object", "properties": {"a": {}, "b": {}}}, {}, {"a": 1}, b'{"a":1}'),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": True}, {}, {"body": {"z": 1}}, b'{"z":1}'),
        ({"type": "array", "items": {}}, {}, {"body": [1]}, b"[1]"),
        ({"allOf": [{"$ref": "#/components/schemas/Pet"}]}, {}, {"body": {"name": "x"}}, b'{"name":"x"}'),
        ({"type": "object", "properties": {"a b": {}}}, {}, {"body": {"a b": 1}}, b'{"a b":1}'),
        ({"type": "object", "properties": {"p": {}}}, {"parameters": [at("query")]},
         {"p": 1, "body": {"p": 2}}, b'{"p":2}'),
        ({"type": "object", "properties": {"a": {}}, "required": ["a"]}, {"required": False}, {}, b""),
        ({"type": "object", "properties": {"a": {}, "b": {}}}, {"media": "application/x-www-form-urlencoded"},
         {"a": "x&y", "b": [1, 2]}, b"a=x%26y&b=1&b=2"),
        ({"type": "string"}, {"media": "text/plain"}, {"body": "plain é"}, "plain é".encode()),
        ({"type": "object", "properties": {"a": {}}}, {"media": "application/merge-patch+json"},
         {"a": None}, b'{"a":null}'),
    ],
)  # fmt: skip
async def test_a_body_is_its_properties_where_they_can_stand_beside_the_parameters(
    project: Project, body: dict[str, Any], more: dict[str, Any], args: dict[str, Any], sent: bytes
) -> None:
    request = await asked(project, spec({"/": post(body, **more)}), args)
    assert request.body == sent
    if sent:
        assert request.headers["content-type"] == more.get("media", "application/json")


@pytest.mark.parametrize(
    ("auth", "headers", "target"),
    [
        ("{bearer: '${KEY}'}", {"authorization": "Bearer sesame-12"}, "/"),
        ("{basic: {username: ann, password: '${KEY}'}}", {"authorization": "Basic YW5uOnNlc2FtZS0xMg=="}, "/"),
        ("{headers: {X-API-Key: '${KEY}'}}", {"x-api-key": "sesame-12"}, "/"),
        ("{query: {key: '${KEY}'}}", {}, "/?key=sesame-12"),
    ],
)
async def test_credentials_go_with_each_request_and_nowhere_else(
    project: Project, auth: str, headers: dict[str, str], target: str
) -> None:
    project.env = {"KEY": "sesame-12"}
    description = spec({"/": get({"name": "key", "in": "query"}, {"name": "X-API-Key", "in": "header"})})
    request = await asked(project, description, {}, keys=f", auth: {auth}")
    assert request.target == target
    assert {name: request.headers.get(name) for name in headers} == headers
    catalog = project.catalog()
    assert "sesame" not in repr(catalog.snapshot().entries) + repr(catalog.registry.sources["api"].__dict__)


# ---------------------------------------------------------------- what comes back


async def test_a_result_is_checked_against_what_the_description_promises(project: Project) -> None:
    good = {"200": {"content": {"application/json": {"schema": PET}}}}
    kinds = []
    for reply in (
        as_json({"id": 1, "name": "rex"}),
        as_json({"id": "one"}),
        page("hello"),
        answer(b"", status="404 No"),
    ):
        async with RawServer(reply) as server:
            tools = project_of(project, spec({"/": get(responses=good)}), server.url).view()
            result = await tools.call("api__ask", {})
            kinds.append(result.error.kind if result.error else result.structured)
    assert kinds == [{"id": 1, "name": "rex"}, "output_invalid", "protocol_error", "upstream_error"]


async def test_arguments_are_checked_here_before_anything_is_sent(project: Project) -> None:
    async with RawServer(as_json({})) as server:
        tools = project_of(project, spec({"/": get(at("query", {"type": "integer"}))}), server.url).view()
        for args in ({"p": "five"}, {"q": 1}):
            result = await tools.call("api__ask", args)
            assert result.error is not None
            assert result.error.kind == "invalid_arguments"
        assert server.hits == 0


# ---------------------------------------------------------------- a description behind a URL


def settings(url: str, **more: Any) -> ApiSettings:
    return ApiSettings(name="api", spec=url, read=lambda text: description_value(text, bounds=DEFAULT_BOUNDS), **more)


async def test_a_description_is_fetched_at_start_and_its_server_may_be_where_it_was(project: Project) -> None:
    yaml = "openapi: 3.0.0\npaths:\n  /hi:\n    get: {operationId: hi, responses: {200: {description: ok}}}\n"

    def reply(asked: Asked) -> bytes:
        return (
            page(yaml + "servers: [{url: /v1}]\n", kind="application/yaml")
            if asked.path == "/api.yaml"
            else page("hello")
        )

    site = Site(reply)
    async with site.server() as server:
        project.write(f"tools: [{{name: api, type: openapi, openapi: {{spec: '{server.url}/api.yaml'}}}}]")
        catalog, config = project.load()
        assert catalog.view(ANN).names() == []
        assert catalog.view(ANN).why("api__hi").code == "source"
        await catalog.start()
        await catalog.registry.sources["api"].listed()  # type: ignore[attr-defined]  # a source of this kind has it
        view = catalog.view(context_for(config, user="ann"))
        assert (await view.call("api__hi", {})).text == "hello"
        await catalog.close()
    assert [asked.target for asked in site.asked] == ["/api.yaml", "/v1/hi"]


async def test_a_description_that_cannot_be_had_is_tried_again_until_it_can() -> None:
    replies = [
        answer(b"", status="503 Away"),
        page("nonsense: ["),
        as_json({"swagger": "1.2"}),
        as_json(spec({"/": get()})),
    ]
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async with Site(lambda _: replies.pop(0)).server() as server:
        source = OpenApiSource(settings(server.url), sleep=sleep)
        catalog = Catalog()
        catalog.add_source(source)
        changes: list[int] = []
        source.subscribe(lambda: changes.append(len(source.entries())))
        assert source.state().status == "connecting"
        await source.start()
        await source.listed()
        assert not source.state().is_up or not replies
        async with asyncio.timeout(60):
            while not changes:
                await asyncio.sleep(0.01)
        await source.stop()
    assert (source.state().is_up, changes, waits) == (True, [1], [1.0, 2.0, 4.0])
    assert catalog.view(ANN).names() == ["api__ask"]


async def test_a_source_that_cannot_be_had_says_why() -> None:
    stuck = asyncio.Event()

    async def sleep(seconds: float) -> None:
        await stuck.wait()

    async with Site(lambda _: answer(b"", status="500 Oops")).server() as server:
        source = OpenApiSource(settings(server.url), sleep=sleep)
        await source.start()
        await source.listed()
        await source.stop()
    assert (source.state().status, source.state().reason) == (
        "unreachable", "The description of API 'api' is unavailable: its server answered 500",
    )  # fmt: skip
