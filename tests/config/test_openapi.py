"""An API from YAML: its operations as tools, what they send, what of a description is taken and what is not."""

import json
from typing import Any

import orjson
import pytest

from pegboard.config.kinds.openapi import description_value
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.sources.openapi.openapi_source import OpenApiSource
from tests.builtin.web import as_json
from tests.config.api import PET, declared, get, post, project_of, spec
from tests.config.project import Project
from tests.config.test_refusals import cases
from tests.core.parts import ANN
from tests.egress.loopback import RawServer

# ---------------------------------------------------------------- declarations


def test_an_operation_is_a_tool_whose_parameters_and_body_are_one_schema(project: Project) -> None:
    parameters = [{"name": "dry", "in": "query", "description": "Only try", "schema": {"type": "boolean"}}]
    body = {"$ref": "#/components/schemas/Pet"}
    good = {"200": {"description": "ok", "content": {"application/json": {"schema": body}}}}
    drawn = declared(
        project,
        spec({"/shops/{shop}/pets": {"parameters": [{"name": "shop", "in": "path", "schema": {"type": "integer"}}],
              **post(body, parameters=parameters, responses=good, summary="Add a pet", description="It gets an id.")}}),
    )  # fmt: skip
    inner = {
        "Pet": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string"}, "parent": {"$ref": "#/$defs/Pet"}, "secret": {"type": "string"}},
        }
    }
    assert drawn.definition() == {
        "name": "ask",
        "description": "Add a pet\n\nIt gets an id.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "shop": {"type": "integer"},
                "dry": {"type": "boolean", "description": "Only try"},
                **inner["Pet"]["properties"],
            },
            "required": ["shop", "name"],
            "additionalProperties": False,
            "$defs": inner,
        },
        "outputSchema": {
            "$ref": "#/$defs/Pet",
            "$defs": {
                "Pet": {
                    "type": "object",
                    "required": ["id", "name"],
                    "properties": {
                        "id": {"type": "number"},
                        "name": {"type": "string"},
                        "parent": {"$ref": "#/$defs/Pet"},
                    },
                }
            },
        },
        "annotations": {"readOnlyHint": False, "openWorldHint": True},
    }


def test_names_come_from_the_operation_id_or_from_method_and_path(project: Project) -> None:
    paths = {
        "/a": {"get": {"operationId": "list.all"}, "put": {}, "head": {}},
        "/pets/{petId}": {
            "parameters": [{"name": "petId", "in": "path", "schema": {}}],
            "delete": {"operationId": "x" * 70},
            "patch": {},
        },
    }
    catalog = project_of(project, spec(paths)).catalog()
    names = catalog.view(ANN).names()
    assert [name for name in names if "xxx" not in name] == [
        "api__list_all", "api__head_a", "api__put_a", "api__patch_pets_petId",
    ]  # fmt: skip
    assert all(len(name) <= 64 for name in names)
    hints = {entry.spec.name[:8]: entry.spec.annotations for entry in catalog.snapshot().entries}
    shown = {name: (said.read_only, said.destructive, said.idempotent) for name, said in hints.items()}
    assert shown == {
        "list_all": (True, False, True),
        "head_a": (True, False, True),
        "put_a": (False, None, True),
        "xxxxxxxx": (False, True, True),
        "patch_pe": (False, None, None),
    }


@pytest.mark.parametrize(
    ("globs", "found"),
    [
        ("list*", ["listPets"]), ("['GET *']", ["listPets", "getPet"]),
        ("['*Pet', 'DELETE /pets/*']", ["getPet", "delete_pets_id"]),
    ],
)  # fmt: skip
def test_globs_choose_operations(project: Project, globs: str, found: list[str]) -> None:
    one = {"parameters": [{"name": "id", "in": "path", "schema": {}}], "get": {"operationId": "getPet"}, "delete": {}}
    paths = {"/pets": {"get": {"operationId": "listPets"}}, "/pets/{id}": one}
    entries = project_of(project, spec(paths), keys=f", operations: {globs}").catalog().snapshot().entries
    assert [entry.spec.name for entry in entries] == found


def test_schemas_of_3_0_are_read_in_the_words_of_2020_12(project: Project) -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "nullable": True, "example": 5},
            "b": {"nullable": True, "allOf": [{"$ref": "#/components/schemas/Pet", "description": "beside"}]},
            "c": {"type": "string", "enum": ["x"], "nullable": True, "x-mine": 1, "xml": {}},
        },
    }
    drawn = declared(project, spec({"/": post(schema)}, version="3.0.3")).input_schema["properties"]
    assert drawn == {
        "a": {"type": ["integer", "null"], "exclusiveMinimum": 0},
        "b": {"anyOf": [{"allOf": [{"$ref": "#/$defs/Pet"}]}, {"type": "null"}]},
        "c": {"type": ["string", "null"], "enum": ["x", None]},
    }


@pytest.mark.parametrize(
    "responses",
    [
        {},
        {"default": {"content": {"application/json": {"schema": PET}}}},
        {"204": {"description": "gone"}},
        {"200": {"content": {"application/json": {"schema": PET}}}, "202": {"description": "later"}},
        {"200": {"content": {"application/json": {"schema": PET}, "text/csv": {}}}},
        {"200": {"content": {"application/json": {"schema": {"$ref": "https://evil.example/x.json"}}}}},
        {"200": {"content": {"application/json": {"schema": {"type": "strin"}}}}},
    ],
)
def test_an_answer_that_is_not_surely_one_json_is_not_promised(project: Project, responses: dict[str, Any]) -> None:
    assert declared(project, spec({"/": get(responses=responses)})).output_schema is None


# ---------------------------------------------------------------- what cannot be honoured


@pytest.mark.parametrize(("text", "said"), cases("refused_openapi.txt"))
def test_an_api_that_cannot_be_honoured_is_refused_at_its_key(project: Project, text: str, said: str) -> None:
    description, _, keys = text.partition(" | ")
    project.file("api.json", description)
    project.write(f"tools:\n  - name: api\n    type: openapi\n    openapi: {{spec: api.json{keys}}}\n")
    [problem] = project.problems()
    assert (problem.where.split(":")[1], f"{problem.path}: {problem.message}") == ("4", f"tools[0].{said}")


def test_operations_that_cannot_be_taken_are_left_out_one_by_one_and_told(project: Project) -> None:
    paths = {
        "/good": get(),
        "@evil.example/x": {"get": {"operationId": "host"}},
        "/../admin": {"get": {"operationId": "climbs"}},
        "/%2e%2E/admin": {"get": {"operationId": "climbs_encoded"}},
        "/a?b={c}": {"get": {"operationId": "query"}},
        "/two words": {"get": {"operationId": "space"}},
        "/caf\u00e9": {"get": {"operationId": "letter"}},
        "/a\\b": {"get": {"operationId": "backslash"}},
        "/remote": {"get": {"operationId": "remote", "parameters": [{"$ref": "file:///etc/passwd"}]}},
        "/nothing": {"get": {"operationId": "nothing", "parameters": [{"$ref": "#/components/no"}]}},
        "/loop": {"get": {"operationId": "loop", "parameters": [{"$ref": "#/components/parameters/Loop"}]}},
        "/file": post({}, media="multipart/related", operationId="file"),
        "/hidden": {"get": {"operationId": "hidden", "parameters": [{"name": "a\u200b", "in": "query"}]}},
        "/away": {"get": {"operationId": "away", "servers": [{"url": "http://169.254.169.254/"}]}},
    }
    components = {"parameters": {"Loop": {"$ref": "#/components/parameters/Loop"}}}
    description = spec(paths, components=components, servers=[{"url": "https://api.example.com"}])
    project.file("api.json", json.dumps(description))
    project.write("tools: [{name: api, type: openapi, openapi: {spec: api.json}}]")
    catalog = project.catalog()
    assert catalog.view(ANN).names() == ["api__ask"]
    source = catalog.registry.sources["api"]
    assert isinstance(source, OpenApiSource)
    reasons = {
        "host": "its path '@evil.example/x' does not begin with '/'",
        "climbs": "its path '/../admin' has a step '.' or '..', which may lead elsewhere",
        "climbs_encoded": "its path '/%2e%2E/admin' has a step '.' or '..', which may lead elsewhere",
        "query": "its path '/a?b={c}' has a query that is not of fixed pairs; what varies is a parameter in 'query'",
        "space": "its path '/two words' has ' ', which a path has only encoded, as '%20'",
        "letter": "its path '/caf\u00e9' has '\u00e9', which a path has only encoded, as '%C3%A9'",
        "backslash": "its path '/a\\\\b' has '\\\\', which a path has only encoded, as '%5C'",
        "remote": "it refers to 'file:///etc/passwd', which is not in the document or in a readable file below its "
        "folder or the folder of the config",
        "nothing": "it refers to '#/components/no', which does not exist",
        "loop": "a parameter has a $ref that leads to itself",
        "file": "its body is of a type that cannot be written: multipart/related",
        "hidden": "a parameter has no usable name and place: 'a' in 'query'",
        "away": "it is on another server, 'http://169.254.169.254'",
    }
    assert dict(source.rejected) == reasons


def test_at_most_so_many_operations_are_taken_and_the_rest_is_told(project: Project) -> None:
    paths = {f"/p{n}": {"get": {}} for n in range(9_000)}
    project_of(project, spec(paths))
    with project.path.open("a") as more:
        more.write("\nlimits: {api_operations: 50}\n")
    catalog = project.catalog()
    source = catalog.registry.sources["api"]
    assert isinstance(source, OpenApiSource)
    assert (len(source.entries()), len(source.rejected)) == (50, 8_950)


def test_10_000_operations_and_more_are_refused_as_a_whole(project: Project) -> None:
    [said] = project_of(project, spec({f"/p{n}": {"get": {}} for n in range(10_001)})).said()
    assert "an object has 10001 keys, more than 10000" in said


async def test_a_server_that_only_the_description_names_is_foreign(project: Project) -> None:
    async with RawServer(as_json({})) as inner:
        project.file("api.json", json.dumps(spec({"/": get()}, servers=[{"url": inner.url}])))
        project.write("tools: [{name: api, type: openapi, openapi: {spec: api.json}}]")
        result = await project.view().call("api__ask", {})
        assert result.error is not None
        assert (result.error.kind, inner.hits) == ("blocked_destination", 0)


async def test_a_file_is_watched(project: Project) -> None:
    _, config = project_of(project, spec({"/": get()})).load()
    assert [path.name for path in config.files] == ["pegboard.yaml", "api.json"]


def test_keys_of_one_tool_are_refused_and_those_of_all_reach_each(project: Project) -> None:
    project_of(project, spec({"/": get(), "/b": {"get": {}}}))
    text = project.path.read_text()
    project.write(
        text.replace("openapi: {", "groups: [shop], rate_limit: 5/60s, timeout_seconds: 3, consent: always, openapi: {")
    )
    for entry in project.catalog().snapshot().entries:
        said = entry.spec
        assert (said.groups, said.rate_limit and said.rate_limit.max_calls, said.timeout_s, said.consent) == (
            ("shop",),
            5,
            4.0,
            "always",
        )
    project.write(text.replace("openapi: {", "aliases: {a: b}, openapi: {"))
    assert project.said()[0].endswith("aliases: is said of one tool; an API has many. Remove it")
    project.write(text.replace("openapi: {", "available: nope, openapi: {"))
    assert "available: Unknown predicate 'nope'" in project.said()[0]


def test_json_and_yaml_say_the_same() -> None:
    value = spec({"/": get()})
    assert description_value(orjson.dumps(value).decode(), bounds=DEFAULT_BOUNDS) == value
    assert description_value("a: {200: x, true: y, '3': [1, null]}", bounds=DEFAULT_BOUNDS) == {
        "a": {"200": "x", "true": "y", "3": [1, None]}
    }
