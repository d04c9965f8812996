"""Descriptions in Swagger 2.0 give the same tools and requests as their OpenAPI 3 twins."""

from typing import Any

import pytest

from pegboard.config.kinds.openapi import description_value
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.sources.openapi.api_description import Document
from pegboard.sources.openapi.security_schemes import OAuthFlow, security_of
from pegboard.sources.openapi.swagger import as_openapi
from tests.builtin.web import Site, as_json
from tests.config.api import asked, declared, project_of
from tests.config.project import Project
from tests.config.test_openapi_shapes import taken


def swagger(*parameters: dict[str, Any], method: str = "post", path: str = "/pets", **more: Any) -> dict[str, Any]:
    keys = {key: more.pop(key) for key in ("consumes", "produces", "responses") if key in more}
    operation = {"operationId": "ask", "parameters": list(parameters), "responses": {}, **keys}
    return {"swagger": "2.0", "info": {"title": "t", "version": "1"}, "paths": {path: {method: operation}}} | more


def param(where: str, kind: str = "string", name: str = "p", **more: Any) -> dict[str, Any]:
    return {"name": name, "in": where, "type": kind} | more


def listed(where: str, collection_format: str) -> dict[str, Any]:
    return param(where, "array", items={"type": "integer"}, collectionFormat=collection_format, required=True)


@pytest.mark.parametrize(
    ("parameter", "path", "target"),
    [
        (listed("query", "multi"), "/pets", "/pets?p=1&p=2"),
        (listed("query", "csv"), "/pets", "/pets?p=1,2"),
        (listed("query", "ssv"), "/pets", "/pets?p=1%202"),
        (listed("query", "tsv"), "/pets", "/pets?p=1%092"),
        (listed("query", "pipes"), "/pets", "/pets?p=1%7C2"),
        (listed("path", "csv"), "/pets/{p}", "/pets/1,2"),
    ],
)
async def test_a_list_is_written_in_its_collection_format(
    project: Project, parameter: dict[str, Any], path: str, target: str
) -> None:
    request = await asked(project, swagger(parameter, method="get", path=path), {"p": [1, 2]})
    assert request.target == target


async def test_a_body_parameter_is_the_json_body(project: Project) -> None:
    pet = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
    body = {"name": "pet", "in": "body", "required": True, "schema": {"$ref": "#/definitions/Pet"}}
    description = swagger({"$ref": "#/parameters/Body"}, parameters={"Body": body}, definitions={"Pet": pet})
    assert declared(project, description).input_schema["required"] == ["name"]
    request = await asked(project, description, {"name": "rex"})
    assert (request.headers["content-type"], request.body) == ("application/json", b'{"name":"rex"}')


async def test_form_fields_are_a_form_and_with_a_file_multipart(project: Project) -> None:
    fields = (param("formData", name="a", required=True), listed("formData", "multi"))
    request = await asked(project, swagger(*fields, consumes=["application/json"]), {"a": "x y", "p": [1, 2]})
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    assert request.body == b"a=x%20y&p=1&p=2"
    request = await asked(project, swagger(fields[0], param("formData", "file", "f")), {"a": "x", "f": "AAA="})
    assert request.headers["content-type"].startswith("multipart/form-data; boundary=")
    assert b'name="f"; filename="f"\r\nContent-Type: application/octet-stream\r\n\r\n\0\0\r\n' in request.body


async def test_parameters_of_a_path_belong_to_each_operation_also_its_body(project: Project) -> None:
    description = swagger(param("query", required=True))
    shared = [param("query", "integer"), {"name": "b", "in": "body", "schema": {"type": "array", "items": {}}}]
    description["paths"]["/pets"]["parameters"] = shared
    schema = declared(project, description).input_schema
    assert schema["properties"] == {"p": {"type": "string"}, "body": {"type": "array", "items": {}}}
    assert schema["required"] == ["p"]


def test_the_response_is_checked_against_the_schema_of_swagger(project: Project) -> None:
    answer = {"type": "object", "properties": {"a": {"type": "string", "x-nullable": True}}}
    responses = {"200": {"$ref": "#/responses/Good"}}
    description = swagger(responses=responses, produces=["text/csv", "application/json"])
    description["responses"] = {"Good": {"schema": {"$ref": "#/definitions/Answer"}}}
    schema = declared(project, description | {"definitions": {"Answer": answer}}).output_schema
    assert schema is not None
    assert schema["$defs"]["Answer"]["properties"]["a"]["type"] == ["string", "null"]


@pytest.mark.parametrize(
    ("server", "base"),
    [
        ({"host": "api.example.com", "basePath": "/v1/", "schemes": ["http", "https"]}, "https://api.example.com/v1"),
        ({"host": "api.example.com", "schemes": ["http"]}, "http://api.example.com"),
        ({"host": "api.example.com", "basePath": "v1"}, "https://api.example.com/v1"),
        ({"host": "http://api.example.com/", "basePath": "/"}, "http://api.example.com"),
        ({"x-ms-parameterized-host": {"hostTemplate": "api.example.com"}}, "https://api.example.com"),
    ],
)
def test_the_server_of_swagger_is_its_scheme_host_and_base_path(server: dict[str, Any], base: str) -> None:
    source = taken(swagger() | server, base_url=None)
    assert source._server is not None  # pyright: ignore[reportPrivateUsage] - the address is seen only in requests
    assert source._server[0] == base  # pyright: ignore[reportPrivateUsage]


def test_security_definitions_are_the_security_schemes() -> None:
    flow = {"type": "oauth2", "flow": "accessCode", "authorizationUrl": "https://i/a", "tokenUrl": "https://i/t"}
    definitions = {"basic": {"type": "basic"}, "login": flow, "key": {"type": "apiKey", "in": "query", "name": "k"}}
    document = Document.read(swagger() | {"securityDefinitions": definitions}, bounds=DEFAULT_BOUNDS)
    basic, login, key = security_of(document, []).schemes
    assert (basic.type, basic.http_scheme) == ("http", "basic")
    assert login.flows == {"authorizationCode": OAuthFlow(authorization_url="https://i/a", token_url="https://i/t")}
    assert (key.type, key.place, key.key_name) == ("apiKey", "query", "k")


async def test_a_query_that_a_path_has_is_sent_once(project: Project) -> None:
    parameter = param("query", name="comp", required=True, enum=["list"])
    description = swagger(method="get")
    description["x-ms-paths"] = {"/x?comp=list": {"get": {"operationId": "list", "parameters": [parameter]}}}
    description["paths"] = {}
    assert (await asked(project, description, {})).target == "/x?comp=list"


async def test_a_template_in_a_path_is_an_argument_that_may_have_slashes(project: Project) -> None:
    parameter = param("path", name="name", required=True, pattern="projects/[^/]+")
    description = swagger(parameter, method="get", path="/v1/{name=projects/*}:run")
    assert (await asked(project, description, {"name": "projects/a b"})).target == "/v1/projects/a%20b:run"


@pytest.mark.parametrize(
    "name",
    ["projects/p/secrets/s/versions/v:access", "projects/p/secrets", "projects/..", "x/p", "projects/p:undelete"],
)
async def test_a_value_of_a_template_leads_to_no_other_operation(project: Project, name: str) -> None:
    site = Site(lambda _: as_json({}))
    async with site.server() as server:
        description = swagger(method="get", path="/v1/{name=projects/*}")
        view = project_of(project, description, server.url).view(user="ann")
        result = await view.call(view.names()[0], {"name": name})
    assert (result.error and result.error.kind, site.asked) == ("invalid_arguments", [])


async def test_plain_json_is_preferred_to_json_patch(project: Project) -> None:
    body = {"name": "b", "in": "body", "schema": {"type": "object"}}
    consumes = ["application/json-patch+json", "application/merge-patch+json"]
    request = await asked(project, swagger(body, consumes=consumes), {"body": {}})
    assert request.headers["content-type"] == "application/merge-patch+json"
    request = await asked(project, swagger(body, consumes=[*consumes, "application/json"]), {"body": {}})
    assert request.headers["content-type"] == "application/json"


def test_a_version_that_yaml_reads_as_a_number_is_taken() -> None:
    for version in ("swagger: 2.0", "openapi: 3.1"):
        read = description_value(f"{version}\npaths: {{}}\n", bounds=DEFAULT_BOUNDS)
        assert Document.read(read, bounds=DEFAULT_BOUNDS).is_30 is (version == "swagger: 2.0")


@pytest.mark.parametrize(
    ("parts", "names", "left_out"),
    [
        (
            {"paths": {"/a": 1, "/b": {"get": 1, "post": {"parameters": 1, "responses": 1, "consumes": 1}}}},
            ["post_b"],
            [],
        ),
        ({"paths": {"/b": {"post": {"parameters": [1, {}, {"in": "formData"}, {"$ref": "#/no"}]}}}}, [], ["post_b"]),
        (
            {"paths": {"/b": {"$ref": "#/paths/~1b"}, "/c": {"get": {"parameters": [{"name": 1, "in": "body"}]}}}},
            ["get_c"],
            [],
        ),
        ({"securityDefinitions": {"a": 1, "b": {"type": "oauth2"}}, "paths": {"/b": {"get": {}}}}, ["get_b"], []),
    ],
)
def test_a_malformed_part_of_swagger_costs_at_most_its_operation(
    parts: dict[str, Any], names: list[str], left_out: list[str]
) -> None:
    source = taken(swagger() | parts)
    assert [entry.spec.name for entry in source.entries()] == names
    assert [each.name for each in source.rejected] == left_out


def test_a_part_to_which_many_lead_is_converted_once() -> None:
    operation = {"parameters": [{"$ref": "#/parameters/p"}], "responses": {"200": {"$ref": "#/responses/r"}}}
    root = {
        "swagger": "2.0",
        "paths": {f"/{number}": {"get": operation} for number in range(3)},
        "parameters": {"p": param("query")},
        "responses": {"r": {"description": "", "schema": {}}},
    }
    first, second, third = (item["get"] for item in as_openapi(root)["paths"].values())
    for each in (second, third):
        assert each["parameters"][0] is first["parameters"][0]
        assert each["responses"]["200"] is first["responses"]["200"]


def test_paths_in_another_part_of_the_document_are_read() -> None:
    root = swagger(param("query"), **{"x-paths": swagger(param("query"))["paths"]}) | {"paths": {"$ref": "#/x-paths"}}
    assert as_openapi(root)["paths"]["/pets"]["post"]["parameters"][0]["schema"] == {"type": "string"}


def test_a_document_that_names_both_versions_is_openapi_3() -> None:
    names = {"swagger": "2.0", "openapi": " 3.0.1", "servers": [{"url": "https://x"}], "components": {"schemas": {}}}
    document = Document.read({**names, "paths": {}}, bounds=DEFAULT_BOUNDS)
    assert (document.root, document.is_30) == ({**names, "paths": {}}, True)
