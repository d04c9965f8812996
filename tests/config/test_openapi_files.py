"""A description in several files is read as one."""

from importlib import import_module
from pathlib import Path

import pytest

from pegboard.sources.openapi import document_parts
from pegboard.sources.openapi.document_parts import with_parts
from pegboard.sources.openapi.openapi_source import OpenApiSource
from tests.builtin.web import Site, as_json
from tests.config.project import Project

ROOT = """
openapi: 3.1.0
paths:
  $ref: paths/_index.yaml
components:
  schemas: {$ref: ./schemas/_index.yaml}
  securitySchemes: {$ref: schemes.yaml}
"""
FILES = {
    "api/paths/_index.yaml": "/pets/{id}: {$ref: pet.yaml}\n/pets: {post: {$ref: '../operations.json#/add'}}\n",
    "api/paths/pet.yaml": """
parameters:
  - $ref: "../shared/parameters.yaml#/Id"
get:
  operationId: getPet
  responses: {"200": {$ref: "../shared/answers.yaml#/pet"}}
  x-codeSamples: [{$ref: missing.yaml}]
""",
    "api/operations.json": """{"add": {"operationId": "addPet", "requestBody": {"content": {"application/json": {
      "schema": {"$ref": "openapi.yaml#/components/schemas/Pet"}}}}}}""",
    "api/shared/parameters.yaml": """
Id: {name: id, in: path, required: true, schema: {$ref: '#/Number'}}
Number: {type: integer}
""",
    "api/shared/answers.yaml": "pet: {content: {application/json: {schema: {$ref: ../schemas/pet.yaml}}}}\n",
    "api/schemas/_index.yaml": "Pet: {$ref: pet.yaml}\n",
    "api/schemas/pet.yaml": """
type: object
properties:
  name: {type: string}
  parent: {$ref: pet.yaml}
  kind: {$ref: kind.yaml}
""",
    "api/schemas/kind.yaml": "type: string\nenum: [cat, dog]\n",
    "api/schemes.yaml": "key: {type: apiKey, in: header, name: X-Key}\n",
}  # fmt: skip


def project_with(project: Project, files: dict[str, str], keys: str = "") -> Project:
    for name, text in files.items():
        project.file(name, text)
    entry = f"{{name: pets, type: openapi, openapi: {{spec: api/openapi.yaml, base_url: 'https://x'}}{keys}}}"
    return project.write(f"tools: [{entry}]")


async def test_a_document_in_many_files_gives_the_tools_of_one(project: Project) -> None:
    site = Site(lambda _: as_json({"name": "rex", "kind": "dog"}))
    async with site.server() as server:
        project_with(project, FILES | {"api/openapi.yaml": ROOT}, ", auth: {mode: static, key: k}")
        text = project.path.read_text().replace("https://x", server.url)
        view = project.write(text).view(user="ann")
        assert view.names() == ["pets__getPet", "pets__addPet"]
        assert (await view.call("pets__getPet", {"id": 7})).structured == {"name": "rex", "kind": "dog"}
        refused = await view.call("pets__addPet", {"name": "rex", "kind": "cow"})
        assert refused.error is not None
        assert refused.error.kind == "invalid_arguments"
        result = await view.call("pets__addPet", {"name": "rex", "parent": {"kind": "cat"}})
        assert result.error is None
    assert [asked.target for asked in site.asked] == ["/pets/7", "/pets"]
    assert site.asked[1].json == {"name": "rex", "parent": {"kind": "cat"}}
    assert site.asked[0].headers["x-key"] == "k"


def test_files_outside_of_the_folders_are_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret.yaml"
    secret.write_text("type: integer\n")
    root = f"""
openapi: 3.1.0
paths:
  /:
    get:
      operationId: ask
      parameters:
        - {{name: a, in: query, schema: {{$ref: ../../secret.yaml}}}}
        - {{name: b, in: query, schema: {{$ref: link.yaml}}}}
        - {{name: c, in: query, schema: {{$ref: {secret}}}}}
        - {{name: d, in: query, schema: {{$ref: ../beside.yaml}}}}
"""
    folder = Project(tmp_path / "config").file("beside.yaml", "type: integer\n").file("api/x", "")
    (tmp_path / "config" / "api" / "link.yaml").symlink_to(secret)
    [entry] = project_with(folder, {"api/openapi.yaml": root}).catalog().snapshot().entries
    schemas = {name: value for name, value in entry.spec.input_schema["properties"].items() if value}
    assert schemas == {"d": {"$ref": "#/$defs/beside"}}


def test_references_in_a_circle_of_files_and_pointers_end(project: Project) -> None:
    root = """
openapi: 3.1.0
paths: {/: {get: {operationId: ask, parameters: [{$ref: 'a.yaml'}, {$ref: '#/components/parameters/P'}]}}}
components: {$ref: '#/components'}
"""
    files = {"api/openapi.yaml": root, "api/a.yaml": "$ref: b.yaml\n", "api/b.yaml": "$ref: a.yaml\n"}
    assert project_with(project, files).catalog().snapshot().entries == ()


def test_too_many_files_are_refused(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_parts, "OPENAPI_PARTS", 3)
    problems = project_with(project, FILES | {"api/openapi.yaml": ROOT}).said()
    assert "refers to more than 3 files; bundle them into one" in problems[0]


def test_anchors_and_encoded_absolute_paths_of_other_files_are_not_read(project: Project) -> None:
    root = """
openapi: 3.1.0
paths:
  /:
    get:
      operationId: ask
      requestBody: {$ref: a.yaml#body}
    put: {operationId: put, requestBody: {$ref: '%2Fetc%2Fhostname'}}
"""
    project.file("api/a.yaml", "$anchor: body\n")
    catalog = project_with(project, {"api/openapi.yaml": root}).catalog()
    source = catalog.registry.sources["pets"]
    assert isinstance(source, OpenApiSource)
    end = "which is not in the document or in a readable file below its folder or the folder of the config"
    assert dict(source.rejected) == {
        "ask": f"it refers to 'a.yaml#body', {end}",
        "put": f"it refers to '%2Fetc%2Fhostname', {end}",
    }
    asked: list[str] = []
    with_parts({"a": {"$ref": "%2Fetc%2Fhostname"}}, name="api.yaml", read=asked.append)
    assert asked == []


def test_values_that_aliases_multiply_count_over_all_files(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("pegboard.config.kinds.openapi"), "OPENAPI_DOCUMENT_VALUES", 3_000)
    many = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\n"
    many += "c: [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]\n"
    paths = "{/a: {$ref: 1.yaml}, /b: {$ref: 2.yaml}, /c: {$ref: 3.yaml}}"
    files = {"api/openapi.yaml": f"openapi: 3.1.0\npaths: {paths}\n"}
    files |= {f"api/{number}.yaml": many for number in (1, 2, 3)}
    [problem] = project_with(project, files).said()
    assert "has, with the files that it refers to, more than 3,000 values; use fewer YAML aliases" in problem
