"""What is declared wrongly while a catalog is served costs its own tool, and nobody else's."""

import logging
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from pegboard import Catalog, DefinitionError, Policy, Profile, ToolContext, ToolSpec
from pegboard.model.tool import ToolEntry
from tests.core.parts import FakeSource

ANN = ToolContext(user_id="ann")


def greeting() -> Catalog:
    catalog = Catalog()

    @catalog.tool
    def hello() -> str:
        return "hello"

    return catalog


@pytest.fixture
async def catalog() -> AsyncGenerator[Catalog]:
    """A catalog that is served, and was seen to be right."""
    catalog = greeting()
    await catalog.start()
    assert catalog.view(ANN).names() == ["hello"]
    yield catalog
    await catalog.close()


async def is_well(catalog: Catalog) -> bool:
    return (await catalog.view(ANN).call("hello")).text == "hello"


async def test_a_tool_with_an_unknown_condition_is_hidden_until_the_condition_exists(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    catalog.tool(name="late", available="is_late")(lambda: "late")
    catalog.mirror("Bash", available="is_late")
    with caplog.at_level(logging.ERROR, "pegboard"):
        assert (await is_well(catalog), catalog.view(ANN).names()) == (True, ["hello"])
    assert "main.late: Unknown predicate 'is_late'." in caplog.text
    assert "The tool is hidden until that is mended." in caplog.text
    decision = catalog.view(ANN).why("late")
    assert (decision.code, "Unknown predicate 'is_late'" in decision.reason) == ("available", True)
    assert (await catalog.view(ANN).call("late")).error.kind == "not_found"  # type: ignore[union-attr]
    catalog.predicate(name="is_late")(lambda ctx: True)
    assert (catalog.view(ANN).names(), (await catalog.view(ANN).call("late")).text) == (
        ["hello", "late", "Bash"],
        "late",
    )


async def test_what_is_wrong_before_it_is_served_is_told_to_whoever_declares_it() -> None:
    catalog = greeting()
    assert catalog.view(ANN).names() == ["hello"]
    catalog.tool(name="late", available="is_late")(lambda: "late")
    with pytest.raises(DefinitionError, match="Unknown predicate 'is_late'"):
        catalog.view(ANN).names()
    unseen = greeting()
    await unseen.start()
    unseen.tool(name="late", available="is_late")(lambda: "late")
    with pytest.raises(DefinitionError, match="Unknown predicate 'is_late'"):
        unseen.view(ANN).names()
    await unseen.close()


async def test_a_builder_whose_new_names_cannot_be_tools_is_left_out_alone(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    names = ["one"]

    def made(name: str) -> Any:
        def tool() -> str:
            return name

        tool.__name__ = name
        return tool

    catalog.builder(lambda: list(names))(lambda ctx: [made(name) for name in names])
    assert (catalog.view(ANN).names(), (await catalog.view(ANN).call("one")).text) == (["hello", "one"], "one")
    for wrong in ("hello", "one"):
        names.append(wrong)
        caplog.clear()
        assert (await is_well(catalog), catalog.view(ANN).names()) == (True, ["hello"])
        assert f"Tool 'main.{wrong}' is declared twice" in caplog.text
        names.pop()
        assert catalog.view(ANN).names() == ["hello", "one"]
    unserved = greeting()
    unserved.builder(lambda: ["hello"])(lambda ctx: [])
    with pytest.raises(DefinitionError, match="declared twice"):
        unserved.view(ANN).names()


async def test_a_tool_that_wants_to_be_a_task_where_none_can_be_is_refused_as_it_is_declared(catalog: Catalog) -> None:
    with pytest.raises(DefinitionError, match="task='optional' needs a place for tasks"):
        catalog.tool(name="slow", task="optional")(lambda: "slow")
    assert (await is_well(catalog), catalog.view(ANN).names()) == (True, ["hello"])


async def test_a_policy_whose_namespace_is_taken_away_goes_on_denying(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    catalog.tool(name="note", namespace="tmp")(lambda: "note")
    policy = Policy(deny=("tmp.*",))
    catalog.profile(Profile(name="guest", policy=policy))
    assert catalog.view(ANN, profile="guest").names() == ["hello"]
    catalog.unregister("tmp.note")
    for _ in range(2):
        assert catalog.view(ANN, profile="guest").names() == ["hello"]
    assert caplog.text.count("'tmp.*' names no declared namespace") == 1
    catalog.tool(name="note", namespace="tmp")(lambda: "note")
    assert (await catalog.view(ANN, profile="guest").call("note")).error.kind == "not_found"  # type: ignore[union-attr]


class Broken(FakeSource):
    """A source that can no longer say what it has."""

    def entries(self) -> Sequence[ToolEntry]:
        raise RuntimeError("no list today")


async def test_a_source_that_cannot_say_what_it_has_takes_nothing_else_with_it(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    catalog.add_source(Broken(name="broken"))
    assert (await is_well(catalog), catalog.view(ANN).names()) == (True, ["hello"])
    assert "Source 'broken' failed to list its tools" in caplog.text


def echo(ctx: ToolContext, args: dict[str, Any]) -> object:
    return args


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"name": "x y"}, "Tool name 'x y'"),
        ({"namespace": "a__b"}, "Namespace 'a__b'"),
        ({"input_schema": {"type": "string"}}, "must be that of an object, not of 'string'"),
        *(
            (
                {"input_schema": {**schema, "$defs": {"a/b": {"type": "array"}, "o": {"$ref": "#/$defs/o"}}}},
                "takes an array",
            )
            for schema in (
                {"type": ["array", "object"]},
                {"anyOf": [{"type": "object"}, {"allOf": [{"type": "array"}]}]},
                {"oneOf": [{"$ref": "#/$defs/a~1b"}, {"$ref": "#/$defs/o"}]},
                {"$ref": "#/$defs/a~1b"},
                {"enum": [{}, [1]]},
                {"const": [1]},
            )
        ),
        ({"deprecated": "soon"}, "deprecated='soon' is not a date"),
        ({"deprecated": 2027}, "deprecated=2027 is not a date"),
        (None, "a tool was left out"),
    ],
)
async def test_a_source_that_lists_what_cannot_be_loses_that_and_nothing_else(
    fault: dict[str, Any] | None, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    good = ToolSpec(name="good", namespace="ext", description="d").bind(echo)
    bad: Any = "no tool" if fault is None else ToolSpec(**{"name": "x", "namespace": "ext", **fault}).bind(echo)
    catalog = greeting()
    catalog.add_source(FakeSource(name="ext", listed=[bad, good]))
    for _ in range(2):
        assert catalog.view(ANN).names() == ["good", "hello"]
        catalog.group("another change")
    assert (caplog.text.count("Source 'ext': a tool was left out"), said in caplog.text) == (1, True)
    if fault is not None and "deprecated" in fault:
        with pytest.raises(DefinitionError, match="is not a date"):
            catalog.register(ToolSpec(name="mine", description="d", **fault), echo)
