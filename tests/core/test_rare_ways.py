"""Rare ways: what happens seldom enough that no other test of the core meets it."""

from typing import Any

from pegboard import Catalog, Secret, TextContent, ToolContext, ToolResult, ToolSpec
from pegboard.core.schema import compile_schema
from pegboard.core.validated_entry import seal
from pegboard.model.record import replace
from tests.core.parts import ANN, FakeSource, echo, foreign


async def test_an_async_predicate_that_comes_while_a_person_thinks_is_awaited_after_the_yes() -> None:
    catalog, ran = Catalog(), list[object]()

    async def handler(ctx: object, args: dict[str, Any]) -> str:
        ran.append(args)
        return "ran"

    async def closed(ctx: ToolContext) -> bool:
        return False

    spec = ToolSpec(name="pay", consent="always")

    def approve(request: object) -> bool:
        catalog.register(replace(spec, available=closed), handler, replace=True)
        return True

    catalog.register(spec, handler)
    result = await catalog.view(replace(ANN, approve=approve)).call("pay", {})
    assert result.error is not None
    assert (result.error.kind, ran) == ("not_found", [])


async def test_what_stands_beside_the_text_of_a_block_is_cleaned_of_secrets_too() -> None:
    catalog = Catalog()
    catalog.add_secrets(Secret("canary-of-the-block"))

    async def handler(ctx: object, args: dict[str, Any]) -> ToolResult:
        block = TextContent("seen", annotations={"note": "canary-of-the-block"})
        return ToolResult((block,))

    catalog.register(ToolSpec(name="tell"), handler)
    result = await catalog.view(ANN).call("tell", {})
    assert not result.is_error
    assert "canary" not in repr(result)
    assert "note" in repr(result)


def test_of_a_value_too_costly_to_explain_the_top_is_told() -> None:
    alternatives = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"anyOf": [{"type": "string"}]}}]}
    schema = {"type": "object", "properties": {"a": alternatives}, "additionalProperties": False, "required": ["b"]}
    problems = compile_schema(schema).problems({"a": [0] * 20_000, "surprise": 1})
    assert {problem.path for problem in problems} >= {"$.b", "$.surprise"}


def test_an_entry_that_is_sealed_again_publishes_what_it_did() -> None:
    spec = ToolSpec(name="t", output_schema={"type": "array", "contains": {"type": "integer"}})
    once = seal(replace(spec.bind(echo), is_foreign=True))
    again = seal(replace(once, fingerprint=""))
    assert (again.spec.output_schema, again.fingerprint) == (once.spec.output_schema, once.fingerprint)


def test_a_tool_whose_name_has_a_tail_leaves_the_others_their_names() -> None:
    catalog, source = Catalog(), FakeSource(name="git", listed=[foreign("git", "x" * 62), foreign("git", "log")])
    catalog.add_source(source)
    assert len(catalog.view(ANN).names()) == 2
    source.relist([foreign("git", "log")])
    assert [entry.wire_name for entry in catalog.snapshot().entries] == ["git__log"]


def test_a_tool_that_goes_gives_its_bare_name_to_who_shared_it() -> None:
    catalog = Catalog()
    for space in ("main", "fs"):
        catalog.register(ToolSpec(name="read", namespace=space), echo)
    assert {entry.wire_name for entry in catalog.snapshot().entries} == {"read", "fs__read"}
    catalog.unregister("main.read")
    assert [entry.wire_name for entry in catalog.snapshot().entries] == ["read"]
