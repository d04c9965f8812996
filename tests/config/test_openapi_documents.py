"""The shapes that real descriptions of APIs have: none costs an operation, and each is called as it is meant."""

import base64
import json
import logging
from typing import Any

import pytest

from pegboard import ToolSpec
from pegboard.config.kinds.openapi import description_value
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.error import DefinitionError
from pegboard.sources.openapi.openapi_source import OpenApiSource
from tests.config.api import asked, at, declared, get, post, project_of, spec
from tests.config.project import Project
from tests.config.test_openapi_shapes import taken
from tests.core.parts import ANN

STRING: dict[str, Any] = {"type": "string"}


def with_schemas(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    return spec({"/": post(schema)}, components={"schemas": schemas})


def parameter_schema(schema: Any, version: str = "3.1.0", **schemas: Any) -> Any:
    """Return what becomes of the schema of one parameter."""
    described = spec({"/": get(at("query", schema))}, version=version, components={"schemas": schemas})
    [entry] = taken(described).entries()
    return entry.spec.input_schema["properties"]["p"]


# ---------------------------------------------------------------- bodies


@pytest.mark.parametrize(
    ("media", "schema", "args", "content_type", "body"),
    [
        ("*/*", {"type": "object", "properties": {"a": STRING}}, {"a": "x"}, "application/json", b'{"a":"x"}'),
        ("application/*", {}, {"body": [1]}, "application/json", b"[1]"),
        ("*/*", {"type": "string", "format": "binary"}, {"body": "AAA="}, "application/octet-stream", b"\0\0"),
        ("application/json; charset=utf-8", {}, {"body": [1]}, "application/json", b"[1]"),
        ("application/merge-patch+json", {}, {"body": {"a": 1}}, "application/merge-patch+json", b'{"a":1}'),
        ("text/json", {}, {"body": {"a": 1}}, "application/json", b'{"a":1}'),
        ("application/x-www-form-urlencoded", {"properties": {"a": STRING}}, {"a": "x y"},
         "application/x-www-form-urlencoded", b"a=x%20y"),
        ("application/xml", STRING, {"body": "<a/>"}, "application/xml", b"<a/>"),
        ("application/x-ndjson", STRING, {"body": "{}\n"}, "application/x-ndjson", b"{}\n"),
        ("application/pdf", STRING, {"body": base64.b64encode(b"%PDF").decode()}, "application/pdf", b"%PDF"),
        ("image/*", {}, {"body": "AAA="}, "application/octet-stream", b"\0\0"),
    ],
)  # fmt: skip
async def test_a_body_of_any_type_is_written_as_that_type(
    project: Project, media: str, schema: dict[str, Any], args: dict[str, Any], content_type: str, body: bytes
) -> None:
    request = await asked(project, spec({"/": post(schema, media=media)}), args)
    assert (request.headers["content-type"], request.body) == (content_type, body)


async def test_json_wins_over_a_range_and_a_range_over_a_form(project: Project) -> None:
    operation = post({}, media="multipart/form-data")
    content = operation["post"]["requestBody"]["content"]
    content["*/*"] = {"schema": {"type": "object", "properties": {"any": STRING}}}
    assert (await asked(project, spec({"/": operation}), {"any": "x"})).headers["content-type"] == "application/json"
    content["application/problem+json"] = {"schema": {"type": "object", "properties": {"own": STRING}}}
    request = await asked(project, spec({"/": operation}), {"own": "x"})
    assert request.headers["content-type"] == "application/problem+json"


async def test_a_multipart_body_that_need_not_be_sent_is_one_argument(project: Project) -> None:
    body = {"required": ["f"], "properties": {"f": {"type": "string", "format": "binary"}, "n": STRING}}
    description = spec({"/": post(body, media="multipart/form-data", required=False)})
    schema = declared(project, description).input_schema
    assert schema["properties"]["body"] == {
        "type": "object",
        "required": ["f"],
        "properties": {
            "f": {"type": "string", "contentEncoding": "base64", "description": "The bytes of a file, in base64."},
            "n": STRING,
        },
    }
    assert "required" not in schema
    request = await asked(project, description, {"body": {"f": "AAA=", "n": "x"}})
    assert b'filename="f"\r\nContent-Type: application/octet-stream\r\n\r\n\0\0\r\n' in request.body
    assert (await asked(project, description, {})).body == b""


# ---------------------------------------------------------------- schemas: the place is left open, not the tool out


def test_a_recursive_reference_leaves_its_place_open() -> None:
    filters = {
        "$recursiveAnchor": True,
        "type": "object",
        "required": ["filters"],
        "properties": {"filters": {"type": "array", "items": {"oneOf": [STRING, {"$recursiveRef": "#"}]}}},
    }
    [entry] = taken(with_schemas({"$ref": "#/components/schemas/Filter"}, {"Filter": filters})).entries()
    assert entry.spec.input_schema["properties"]["filters"] == {"type": "array", "items": {"oneOf": [STRING, {}]}}


@pytest.mark.parametrize(
    "open_reference",
    [
        "https://evil.example/x.json", "common.yaml#/components/schemas/A", "#/components/schemas/None", "#", "#Anchor",
        "Pet", "#/components/schemas/Loop",
    ],
)  # fmt: skip
def test_a_reference_that_leads_nowhere_leaves_its_place_open(open_reference: str) -> None:
    loop = {"$ref": "#/components/schemas/Loop"}
    schema = {"type": "object", "properties": {"a": {"$ref": open_reference}, "b": STRING}}
    assert parameter_schema(schema, Loop=loop)["properties"] == {"a": {}, "b": STRING}


@pytest.mark.parametrize(
    ("schema", "becomes"),
    [
        ({"type": "strin"}, {}),
        ({"type": "file"}, {}),
        ({"type": ["string", "null", "string"]}, {"type": ["string", "null"]}),
        ({"type": ["string", 5]}, {"type": ["string"]}),
        ({"type": "string", "pattern": "("}, STRING),
        # Too long to make: one operation must not keep the others, nor the config, from being read.
        ({"type": "string", "pattern": "a{1,60000}"}, STRING),
        ({"type": "string", "pattern": "(?:(?:a{1,999}){1,999}){1,999}"}, STRING),
        ({"type": "string", "pattern": "^(?!x)y"}, {"type": "string", "pattern": "^(?!x)y"}),
        ({"type": "string", "enum": []}, STRING),
        ({"type": "string", "maxLength": "5", "minLength": -1}, STRING),
        ({"type": "integer", "minimum": "0", "multipleOf": 0}, {"type": "integer"}),
        ({"type": "integer", "maximum": 10**400}, {"type": "integer"}),
        ({"type": "integer", "exclusiveMinimum": True}, {"type": "integer"}),
        ({"type": "object", "required": True}, {"type": "object"}),
        ({"type": "object", "required": ["a", "a", 5]}, {"type": "object", "required": ["a"]}),
        ({"type": "array", "items": [STRING, {}]}, {"type": "array", "prefixItems": [STRING, {}]}),
        ({"allOf": []}, {}),
        ({"$id": "https://x.example/a", "$anchor": "b", "$dynamicAnchor": "c", "type": "string"}, STRING),
        ({"$dynamicRef": "#c", "description": "beside"}, {"description": "beside"}),
        ({"oneOf": [STRING, None, 5]}, {"oneOf": [STRING, {}, {}]}),
        ({"discriminator": {"propertyName": "kind"}, "oneOf": [STRING]}, {"oneOf": [STRING]}),
        (None, {}),
        ([1], {}),
    ],
)
def test_words_that_mean_nothing_leave_their_place_open(schema: Any, becomes: Any) -> None:
    assert parameter_schema(schema) == becomes


def test_siblings_of_a_reference_count_in_3_1_alone() -> None:
    schema = {"$ref": "#/components/schemas/A", "description": "beside", "default": "x"}
    beside = {"$ref": "#/$defs/A", "description": "beside", "default": "x"}
    assert parameter_schema(schema, "3.1.0", A=STRING) == beside
    assert parameter_schema(schema, "3.0.3", A=STRING) == {"$ref": "#/$defs/A"}


def test_references_into_paths_and_of_one_name_are_kept_apart() -> None:
    paths = {
        "/a": get(at("query", {"type": "integer"})),
        "/b": post(
            {
                "type": "object",
                "properties": {
                    "one": {"$ref": "#/paths/~1a/get/parameters/0/schema"},
                    "two": {"$ref": "#/components/schemas/schema"},
                    "three": {"$ref": "#/components/schemas/schema_2"},
                },
            },
            operationId="b",
        ),
    }
    source = taken(spec(paths, components={"schemas": {"schema": STRING, "schema_2": {"type": "boolean"}}}))
    drawn = source.entries()[1].spec.input_schema
    kinds = [drawn["$defs"][drawn["properties"][name]["$ref"][8:]]["type"] for name in ("one", "two", "three")]
    assert kinds == ["integer", "string", "boolean"]


def test_a_schema_that_refers_to_more_than_can_be_judged_is_left_open_behind_the_nearest() -> None:
    count = 3_000
    schemas = {
        f"S{n}": {"type": "object", "properties": {"next": {"$ref": f"#/components/schemas/S{n + 1}"}, "n": STRING}}
        for n in range(count)
    }
    body = {"type": "object", "properties": {"s": {"$ref": "#/components/schemas/S0"}}}
    [entry] = taken(with_schemas(body, schemas)).entries()
    definitions = entry.spec.input_schema["$defs"]
    assert definitions["S0"]["properties"]["n"] == STRING
    assert 100 < len(definitions) < count
    assert [name for name, schema in definitions.items() if schema == {}] == [f"S{len(definitions) - 1}"]


def test_levels_too_deep_to_judge_are_left_open() -> None:
    deep: dict[str, Any] = STRING
    for _ in range(80):
        deep = {"type": "object", "properties": {"a": deep}}
    schema = parameter_schema(deep)
    levels = 0
    while schema:
        schema, levels = schema["properties"]["a"], levels + 1
    assert 20 < levels < 80


# ---------------------------------------------------------------- names, parameters and servers


def test_operations_of_one_id_and_twins_in_case_are_all_taken(project: Project) -> None:
    paths = {
        "/a": {"get": {"operationId": "list"}, "post": {"operationId": "list"}},
        "/b": {"get": {"operationId": "list"}, "put": {"operationId": "LIST"}, "delete": {}},
    }
    catalog = project_of(project, spec(paths)).catalog()
    names = catalog.view(ANN).names()
    assert [*names[:3], names[4]] == ["api__list", "api__post_a", "api__get_b", "api__delete_b"]
    assert names[3].startswith("api__LIST_")
    assert len({name.casefold() for name in names}) == 5
    assert catalog.view(ANN).names() == project.catalog().view(ANN).names()


async def test_a_place_in_the_path_that_no_parameter_declares_is_a_text(project: Project) -> None:
    description = spec({"/v1/{team}/x/{id}": get(at("path", name="id"))})
    assert declared(project, description).input_schema["required"] == ["id", "team"]
    assert (await asked(project, description, {"team": "a/b", "id": 7})).target == "/v1/a%2Fb/x/7"


@pytest.mark.parametrize(
    ("parameter", "schema", "target"),
    [
        # Swagger 2 has the type beside the name; a style that a place does not have means its usual one.
        ({"name": "p", "in": "query", "type": "integer", "description": "It."},
         {"type": "integer", "description": "It."}, "/?p=1"),
        (at("query", STRING | {"type": "integer"}, style="simple"), {"type": "integer"}, "/?p=1"),
        ({"name": "p", "in": "query", "content": {"text/plain": {"schema": {"type": "integer"}}}},
         {"type": "integer"}, "/?p=1"),
        ({"name": "p", "in": "query", "content": {"text/plain": {}, "application/json": {"schema": {}}}}, {}, "/?p=1"),
    ],
)  # fmt: skip
async def test_a_parameter_is_read_in_the_words_that_it_has(
    project: Project, parameter: dict[str, Any], schema: dict[str, Any], target: str
) -> None:
    assert declared(project, spec({"/": get(parameter)})).input_schema["properties"]["p"] == schema
    assert (await asked(project, spec({"/": get(parameter)}), {"p": 1})).target == target


def test_half_a_server_of_an_operation_lies_beside_the_server_of_all(project: Project) -> None:
    paths = {"/": get(servers=[{"url": "/v2"}]), "/b": {"get": {"operationId": "b", "servers": [{"url": "//evil.x"}]}}}
    project.file("api.json", json.dumps(spec(paths, servers=[{"url": "https://api.example.com/v1"}])))
    project.write("tools: [{name: api, type: openapi, openapi: {spec: api.json}}]")
    source = project.catalog().registry.sources["api"]
    assert isinstance(source, OpenApiSource)
    assert [entry.spec.name for entry in source.entries()] == ["ask"]
    assert source.rejected[0].reason == "it is on another server, 'https://evil.x'"


# ---------------------------------------------------------------- what the config says of them


def operations_of(project: Project, keys: str) -> dict[str, ToolSpec]:
    paths = {"/pets": {"get": {"operationId": "listPets"}, "post": {"operationId": "addPet"}}, "/shop": {"get": {}}}
    catalog = project_of(project, spec(paths), keys=keys).catalog()
    return {entry.spec.name: entry.spec for entry in catalog.snapshot().entries}


def test_single_operations_are_renamed_by_id_or_by_method_and_path(project: Project) -> None:
    names = operations_of(project, ", rename: {listPets: pets, 'GET /shop': shop}")
    assert list(names) == ["pets", "addPet", "shop"]


def test_a_new_name_that_another_operation_has_is_its_alone(project: Project) -> None:
    names = list(operations_of(project, ", rename: {listPets: addPet}"))
    assert names[0] == "addPet"
    assert names[1].startswith("addPet_")


def test_a_rename_of_what_is_not_there_is_told(project: Project, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        operations_of(project, ", rename: {listPet: pets}")
    assert "'listPet' was left out: `rename` names it, but no selected operation has that name" in caplog.text


def test_groups_go_to_the_operations_that_a_glob_fits(project: Project) -> None:
    keys = ", groups: {'*': [all], 'GET *': [reads], addPet: [writes]}"
    groups = {name: spec.groups for name, spec in operations_of(project, keys).items()}
    assert groups == {"listPets": ("all", "reads"), "addPet": ("all", "writes"), "get_shop": ("all", "reads")}
    groups = {name: spec.groups for name, spec in operations_of(project, ", groups: {addPet: [writes]}").items()}
    assert groups == {"listPets": ("core",), "addPet": ("writes",), "get_shop": ("core",)}


# ---------------------------------------------------------------- documents of any size, in JSON and in YAML


def test_a_document_of_13_mb_is_taken_and_one_beyond_the_limit_says_which_limit(project: Project) -> None:
    paths = {f"/p{n}": {"get": {"operationId": f"o{n}", "description": "x" * 6_500}} for n in range(2_000)}
    catalog = project_of(project, spec(paths)).catalog()
    assert len(catalog.view(ANN).names()) == 2_000
    with project.path.open("a") as more:
        more.write("\nlimits: {api_description_bytes: 1000000}\n")
    [said] = project.said()
    assert said.endswith("has more than 1,000,000 bytes; allow more with `limits: {api_description_bytes: …}`")


def read(text: str) -> Any:
    return description_value(text, bounds=DEFAULT_BOUNDS)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: [yes, on, 010, 0o10, 1_000, 12:30, 2027-01-01, ~, '5', !!str 5, .5, 1e3]",
         {"a": ["yes", "on", 10, 8, "1_000", "12:30", "2027-01-01", None, "5", "5", 0.5, 1000.0]}),
        ("200: a\ntrue: b\n1.0: c\n", {"200": "a", "true": "b", "1.0": "c"}),
        ("b: &b {x: 1, y: 2}\na: {<<: *b, y: 3}", {"b": {"x": 1, "y": 2}, "a": {"x": 1, "y": 3}}),
        ("a: {<<: [{x: 1}, {x: 2, z: 3}], y: 3}", {"a": {"x": 1, "y": 3, "z": 3}}),
        ("'<<': 1", {"<<": 1}),
        ("a: &x [1]\nb: *x", {"a": [1], "b": [1]}),
        ("a: |\n  x\n  y\nb: >\n  x\n  y\n", {"a": "x\ny\n", "b": "x y\n"}),
        ('a: "\\u263a \\uD83D\\uDE00"', {"a": "\u263a \U0001f600"}),
    ],
)  # fmt: skip
def test_yaml_of_others_means_what_yaml_1_2_says(text: str, value: Any) -> None:
    assert read(text) == value


BOMB = "openapi: 3.0.0\na0: &a0 [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
)
PADDING = "# " + "x" * 300_000 + "\n"


@pytest.mark.parametrize("padding", ["", PADDING], ids=["small", "large"])
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (BOMB, "aliases written out"),
        ("a: &a [*a]", "anchor"),
        ("a: 1\nb: 2\na: 3", "occurs twice"),
        ("a: 1\n'a': 3", "occurs twice"),
        ("a: " + "[" * 200 + "]" * 200, "levels"),
        ("a: !!python/object/apply:os.system [x]", "tag"),
        ("a: !env HOME", "tag"),
        ("a: 1\n---\nb: 2", "second document"),
        ("{[a]: 1}".replace("{", "? {", 1) + "\n: 2", ""),
        ("a: .nan", "not a number"),
        ("a: " + "9" * 5_000, "at most"),
        ("a: b: c", "mapping values are not allowed"),
        ("a: 'x", ""),
    ],
)
def test_yaml_of_others_is_refused_as_a_config_would_be(padding: str, text: str, fault: str) -> None:
    with pytest.raises(DefinitionError, match="cannot be read as") as refusal:
        read(padding + text)
    assert fault in str(refusal.value)
    assert len(str(refusal.value)) < 500
