"""The OpenAPI document: it says what the API does for the caller who asks, which schemathesis tries to disprove."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from pegboard import Catalog, http_app
from pegboard.auth.keys import KeyStore
from pegboard.auth.rules import AnonymousRule, IdentityRules
from pegboard.server.http_api.embedded_schema import moved
from tests.auth.parts import rule
from tests.server.doors import inside, served
from tests.server.http_tools import shop

CALLS = ["add", "order", "pick", "now", "ship", "plant"]
# A stream that goes on until its reader leaves is no case for it.
# The first search of a process builds its index, which takes long on a busy machine.
RUN = ["run", "-c", "all", "--exclude-path", "/v1/events", "--warnings", "off", "--request-timeout", "60"]


# One path for all tools cannot say which arguments each takes; all other checks hold for it too.
FORMS = {"typed": (), "generic": ("--exclude-checks", "positive_data_acceptance")}
DOORS = ("open", "keys", "keys or none")


def guarded_shop(folder: Path, door: str) -> tuple[Catalog, dict[str, str]]:
    """Return the shop behind a door, and the headers that open it."""
    catalog = shop()
    if door == "open":
        return catalog, {}
    store = KeyStore(folder / "keys.db")
    catalog.identity = IdentityRules(
        key_store=store.path,
        map=(rule(key="ann", user="ann", profiles=("default",)),),
        anonymous=AnonymousRule(profiles=("default",)) if door == "keys or none" else None,
    )
    return catalog, {"Authorization": f"Bearer {store.add('ann')[0]}"}


async def fuzzed(folder: Path, *options: str, form: str, door: str) -> str:
    """Let schemathesis try the running app; return what it says when it found something, else nothing."""
    catalog, heads = guarded_shop(folder, door)
    shown = [part for name, value in heads.items() for part in ("-H", f"{name}: {value}")]
    async with served(http_app(catalog)) as url:
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("schemathesis")), "--no-color", *RUN, *FORMS[form], *shown, *options,
            f"{url}/openapi.json?form={form}",
            cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
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


@pytest.mark.parametrize(
    ("form", "door"), [("typed", "keys"), pytest.param("generic", "keys or none", marks=pytest.mark.soak)]
)
async def test_schemathesis_finds_nothing(tmp_path: Path, form: str, door: str) -> None:
    found = await fuzzed(tmp_path, "-n", "2", "--generation-deterministic", form=form, door=door)
    assert not found, found


@pytest.mark.soak
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("form", FORMS)
async def test_schemathesis_finds_nothing_in_ten_minutes(tmp_path: Path, form: str, door: str) -> None:
    found = await fuzzed(tmp_path, "--max-time", "100", "--generation-database", "none", form=form, door=door)
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


@pytest.mark.parametrize(
    ("door", "security"), [("open", None), ("keys", [{"bearer": []}]), ("keys or none", [{"bearer": []}, {}])]
)
async def test_the_document_says_who_must_show_a_credential(tmp_path: Path, door: str, security: Any) -> None:
    catalog, heads = guarded_shop(tmp_path, door)
    async with inside(http_app(catalog)) as client:
        drawn = (await client.get("/openapi.json", headers=heads)).json()
    assert drawn.get("security") == security
    assert ("securitySchemes" in drawn["components"]) == (security is not None)


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
