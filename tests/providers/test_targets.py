"""Targets: what each provider is sent, whole, and the bytes that are made once for callers who see the same."""

from typing import Any

import orjson
import pytest

from pegboard import Catalog, DefinitionError, Policy, ToolContext, ToolSpec
from pegboard.providers import EXPORTERS

# The documented example (contracts/sources.md), byte for byte.
WEB_SEARCH = (
    b'{"type":"function","function":{"name":"web_search","description":"Search the web for current information",'
    b'"parameters":{"type":"object","properties":{"query":{"type":"string","description":"Search query"},'
    b'"max_results":{"type":"integer","description":"Maximum results","default":5}},"required":["query"]}}}'
)
TARGETS = ("openai", "openai_strict", "openai_responses", "anthropic", "anthropic_strict", "gemini", "mcp")
SCHEMA = orjson.loads(WEB_SEARCH)["function"]["parameters"]


def web_search(query: str, max_results: int = 5) -> list[str]:
    """Search the web for current information

    Args:
        query: Search query
        max_results: Maximum results
    """
    return [query] * max_results


def catalog_with_search(**options: Any) -> Catalog:
    catalog = Catalog()
    catalog.tool(**options)(web_search)
    return catalog


# ---------------------------------------------------------------- forms


def test_the_documented_example_comes_out_exactly_from_a_definition_and_from_a_function():
    declared = Catalog()
    declared.register(ToolSpec.from_openai(orjson.loads(WEB_SEARCH)), handler=lambda ctx, args: [])
    for catalog in (declared, catalog_with_search()):
        view = catalog.view(ToolContext())
        assert view.export_bytes("openai") == b"[" + WEB_SEARCH + b"]"
        assert view.export("openai") == [orjson.loads(WEB_SEARCH)]


def test_an_openai_definition_survives_the_way_through_a_catalog():
    definition = {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Tell it.",
            "parameters": {
                "type": "object",
                "properties": {"place": {"$ref": "#/$defs/Place"}},
                "$defs": {"Place": {"type": "string", "title": "Place"}},
                "additionalProperties": False,
            },
        },
    }
    catalog = Catalog()
    catalog.register(ToolSpec.from_openai(definition), handler=lambda ctx, args: "sunny")
    assert catalog.view(ToolContext()).export("openai") == [definition]


def test_anthropic_is_sent_name_description_and_input_schema():
    assert catalog_with_search().view(ToolContext()).export("anthropic") == [
        {"name": "web_search", "description": "Search the web for current information", "input_schema": SCHEMA}
    ]


def test_gemini_is_sent_a_function_declaration_with_a_json_schema():
    assert catalog_with_search().view(ToolContext()).export("gemini") == [
        {
            "name": "web_search",
            "description": "Search the web for current information",
            "parametersJsonSchema": {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "Search query"},
                    # Gemini knows no `default`; the model is told it in words.
                    "max_results": {"type": "integer", "description": "Maximum results (default: 5)"},
                },
                "required": ["query"],
            },
        }
    ]


def test_openai_responses_is_sent_a_strict_function_with_nothing_nested():
    assert catalog_with_search().view(ToolContext()).export("openai_responses") == [
        {
            "type": "function",
            "name": "web_search",
            "description": "Search the web for current information",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "Search query"},
                    "max_results": {"type": ["integer", "null"], "description": "Maximum results (default: 5)"},
                },
                "required": ["query", "max_results"],
                "additionalProperties": False,
            },
        }
    ]


def test_anthropic_strict_keeps_what_may_be_left_out():
    [tool] = catalog_with_search().view(ToolContext()).export("anthropic_strict")
    assert tool["strict"] is True
    assert tool["input_schema"] == {**SCHEMA, "additionalProperties": False}


def test_mcp_is_sent_all_that_was_said():
    catalog = catalog_with_search(
        title="Web",
        read_only=True,
        open_world=True,
        annotations={"cost": "low"},
        meta={"team": "search"},
        ui="ui://results",
        icons=[{"src": "https://x/i.png"}],
    )
    assert catalog.view(ToolContext()).export("mcp") == [
        {
            "name": "web_search",
            "title": "Web",
            "description": "Search the web for current information",
            "inputSchema": SCHEMA,
            "outputSchema": {"type": "array", "items": {"type": "string"}},
            "annotations": {"title": "Web", "readOnlyHint": True, "openWorldHint": True, "cost": "low"},
            "icons": [{"src": "https://x/i.png"}],
            "_meta": {"team": "search", "ui": {"resourceUri": "ui://results"}},
        }
    ]


def test_empty_keys_are_left_out():
    catalog = Catalog()
    catalog.register(ToolSpec(name="bare"), handler=lambda ctx, args: None)
    view, nothing = catalog.view(ToolContext()), {"type": "object", "properties": {}}
    closed: Any = {"required": [], "additionalProperties": False}
    assert [view.export(target) for target in TARGETS] == [
        [{"type": "function", "function": {"name": "bare", "parameters": nothing}}],
        [{"type": "function", "function": {"name": "bare", "strict": True, "parameters": {**nothing, **closed}}}],
        [{"type": "function", "name": "bare", "strict": True, "parameters": {**nothing, **closed}}],
        [{"name": "bare", "input_schema": nothing}],
        [{"name": "bare", "input_schema": {**nothing, "additionalProperties": False}, "strict": True}],
        [{"name": "bare", "parametersJsonSchema": nothing}],
        [{"name": "bare", "inputSchema": nothing}],
    ]


@pytest.mark.parametrize("target", TARGETS)
def test_a_tool_goes_out_under_its_wire_name(target: str):
    catalog = catalog_with_search()
    catalog.tool(namespace="other")(web_search)
    exported = catalog.view(ToolContext()).export_bytes(target)
    assert exported.count(b'"name":"web_search"') == 1
    assert exported.count(b'"name":"other__web_search"') == 1


def test_an_unknown_target_comes_with_the_known_ones():
    with pytest.raises(DefinitionError, match=r"Unknown export target 'opnai'.*'openai'"):
        Catalog().view(ToolContext()).export("opnai")


# ---------------------------------------------------------------- bytes


def many(namespaces: tuple[str, ...] = ("b", "a", "main")) -> Catalog:
    catalog = Catalog()
    for namespace in namespaces:
        for name in ("two", "one"):
            spec = ToolSpec(name=name, namespace=namespace, description="Ünïcode", groups=(namespace,))
            catalog.register(spec, handler=lambda ctx, args: None)
    return catalog


@pytest.mark.parametrize("target", TARGETS)
def test_bytes_are_those_of_the_values(target: str):
    view = many().view(ToolContext())
    assert view.export_bytes(target) == orjson.dumps(view.export(target))
    assert many().view(ToolContext(), include=[]).export_bytes(target) == b"[]"


@pytest.mark.parametrize("target", TARGETS)
def test_how_long_the_bytes_are_is_told_without_joining_them(target: str):
    for groups in ([], ["a"], ["a", "b", "main"]):
        view = many().view(ToolContext(), include=groups)
        size_bytes = EXPORTERS[target].size_bytes(view)
        assert size_bytes == EXPORTERS[target].size_bytes(view) == len(view.export_bytes(target))


@pytest.mark.parametrize("target", TARGETS)
def test_bytes_are_the_same_whatever_order_the_namespaces_came_in(target: str):
    one, other = many(("b", "a", "main")), many(("main", "b", "a"))
    assert one.view(ToolContext()).export_bytes(target) == other.view(ToolContext()).export_bytes(target)


def test_bytes_are_made_once_for_callers_who_see_the_same_and_never_shared_with_others():
    catalog = many()
    ann, bob = catalog.view(ToolContext(user_id="ann")), catalog.view(ToolContext(user_id="bob"))
    eve = catalog.view(ToolContext(user_id="eve", policy=Policy(deny=("a.*",))))
    assert ann.export_bytes("mcp") is bob.export_bytes("mcp")
    assert ann.export_bytes("mcp") is not ann.export_bytes("openai")
    assert [tool["name"] for tool in orjson.loads(eve.export_bytes("mcp"))] == ["b__two", "b__one", "two", "one"]
    assert len(orjson.loads(bob.export_bytes("mcp"))) == 6


def test_values_are_the_callers_to_change():
    view = many().view(ToolContext())
    view.export("openai")[0]["function"]["parameters"]["properties"]["x"] = {}
    assert "x" not in str(view.export("openai"))


def test_a_change_of_the_catalog_is_seen_in_the_bytes():
    catalog = many()
    before = catalog.view(ToolContext()).export_bytes("mcp")
    catalog.unregister("main.one")
    assert len(orjson.loads(before)) - len(orjson.loads(catalog.view(ToolContext()).export_bytes("mcp"))) == 1


def test_what_a_builder_made_for_one_caller_is_not_sent_to_another():
    catalog = Catalog()

    @catalog.builder("greet")
    def _(ctx: ToolContext):
        spec = ToolSpec(name="greet").extended(extra_properties={ctx.user_id or "nobody": {"type": "string"}})
        return spec.bind(lambda ctx, args: None)

    def sent(user_id: str) -> list[str]:
        view = catalog.view(ToolContext(user_id=user_id))
        return list(view.export("mcp")[0]["inputSchema"]["properties"])

    assert [sent("ann"), sent("bob"), sent("ann")] == [["ann"], ["bob"], ["ann"]]
    assert catalog.snapshot().entries[0].spec.input_schema == {"type": "object", "properties": {}}


def test_an_extra_tool_is_sent_to_the_one_view_that_has_it():
    catalog = many()
    extra = ToolSpec(name="extra").bind(lambda ctx, args: None)
    view = catalog.view(ToolContext(), extra_tools=[extra])
    assert b'"extra"' in view.export_bytes("mcp")
    assert b'"extra"' not in catalog.view(ToolContext()).export_bytes("mcp")


@pytest.mark.parametrize("target", TARGETS)
def test_a_schema_that_refers_to_itself_is_exported(target: str):
    tree = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}}
    schema: Any = {"type": "object", "properties": {"root": {"$ref": "#/$defs/tree"}}, "$defs": {"tree": tree}}
    catalog = Catalog()
    catalog.register(ToolSpec(name="plant", input_schema=schema), lambda ctx, args: None)
    [tool] = catalog.view(ToolContext()).export(target)
    assert b"kids" in orjson.dumps(tool)
