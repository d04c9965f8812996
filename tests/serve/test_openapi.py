"""The OpenAPI document: it says what the API does for the caller who asks, which schemathesis tries to disprove."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from pegboard.serve import http_app
from pegboard.serve.api.schemas import moved
from tests.serve.doors import inside, served
from tests.serve.http_tools import shop

CALLS = ["add", "order", "pick", "now", "ship", "plant"]
# A stream that goes on until its reader leaves is no case for it.
RUN = ["run", "-c", "all", "--exclude-path", "/v1/events", "--warnings", "off"]


# One path for all tools cannot say which arguments each takes; all other checks hold for it too.
FORMS = {"typed": (), "generic": ("--exclude-checks", "positive_data_acceptance")}


async def fuzzed(tmp_path: Path, *options: str, form: str = "typed") -> str:
    """Let schemathesis try the running app; return what it says when it found something, else nothing."""
    async with served(http_app(shop())) as url:
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("schemathesis")), "--no-color", *RUN, *FORMS[form], *options,
            f"{url}/openapi.json?form={form}",
            cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        try:
            said, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    text = said.decode()
    assert "Test cases" in text, text
    return text if process.returncode else ""


@pytest.mark.parametrize(("form", "examples"), [("typed", 4), ("generic", 2)])
async def test_schemathesis_finds_nothing(tmp_path: Path, form: str, examples: int) -> None:
    found = await fuzzed(tmp_path, "-n", str(examples), "--generation-deterministic", form=form)
    assert not found, found


@pytest.mark.soak
@pytest.mark.parametrize("form", ["typed", "generic"])
async def test_schemathesis_finds_nothing_in_ten_minutes(tmp_path: Path, form: str) -> None:
    found = await fuzzed(tmp_path, "--max-time", "300", "--generation-database", "none", form=form)
    assert not found, found


async def test_each_caller_has_a_path_for_each_tool_that_it_may_use_and_no_others() -> None:
    async with inside(http_app(shop())) as client:
        answer = await client.get("/openapi.json")
        drawn = answer.json()
        assert drawn["openapi"] == "3.1.0"
        assert [path for path in drawn["paths"] if path.endswith("/call")] == [f"/v1/tools/{n}/call" for n in CALLS]
        assert "wipe" not in answer.text
        generic = (await client.get("/openapi.json?form=generic")).json()
        assert [path for path in generic["paths"] if path.endswith("/call")] == ["/v1/tools/{name}/call"]
        assert (await client.get("/openapi.json?profile=nobody")).status_code == 404
        assert (await client.get("/openapi.json?form=nice")).status_code == 400


async def test_the_types_of_the_document_judge_as_the_call_does() -> None:
    tree = {"tree": {"label": "a", "children": [{"label": "b"}]}, "default": "x"}
    cases: list[tuple[str, Any, bool]] = [
        ("plant", tree, True),
        ("plant", {"tree": {"children": [{"leaf": 1}]}}, False),
        ("plant", {**tree, "default": 5}, False),
        ("order", {"items": [{"name": "x", "count": 2}], "colour": "red"}, True),
        ("order", {"items": [{"count": 2}], "colour": "red"}, False),
        ("add", {"a": 1, "c": 2}, False),
    ]
    async with inside(http_app(shop())) as client:
        drawn = (await client.get("/openapi.json")).json()
        for name, arguments, is_right in cases:
            operation = drawn["paths"][f"/v1/tools/{name}/call"]["post"]
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            judge = jsonschema.Draft202012Validator({**drawn, **schema})
            answer = await client.post(f"/v1/tools/{name}/call", json=arguments)
            assert (judge.is_valid(arguments), answer.status_code) == (is_right, 200 if is_right else 422), name


async def test_below_a_path_of_another_app_it_says_so() -> None:
    inner = http_app(shop())
    outer = Starlette(routes=[Mount("/tools", app=inner)], lifespan=inner.router.lifespan_context)
    async with inside(outer) as client:
        assert (await client.get("/tools/openapi.json")).json()["servers"] == [{"url": "/tools"}]
        assert (await client.post("/tools/v1/tools/now/call")).status_code == 200


def test_a_schema_means_the_same_where_it_is_moved_to() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "properties": {"$ref": {"$ref": "#"}, "enum": {"$ref": "#/$defs/a"}},
        "const": {"$ref": "#/a value"},
        "$defs": {"a": {"anyOf": [{"$ref": "#/properties/enum"}, True]}},
    }
    assert moved(schema, "#/x") == {
        "properties": {"$ref": {"$ref": "#/x"}, "enum": {"$ref": "#/x/$defs/a"}},
        "const": {"$ref": "#/a value"},
        "$defs": {"a": {"anyOf": [{"$ref": "#/x/properties/enum"}, True]}},
    }
    assert moved({"$id": "https://example.com/a"}, "#/x") is None
    assert moved({"items": {"$ref": "other.json"}}, "#/x") is None
