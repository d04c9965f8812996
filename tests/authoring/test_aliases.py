"""Aliases: other names for a parameter, in classes and functions."""

from typing import Annotated, Any

import jsonschema
import pytest

from pegboard import Catalog, DefinitionError, Field, Tool, ToolContext
from tests.authoring.parts import call, catalog_of, paths, schema


class Post(Tool, register=False, aliases={"root_id": "thread_id", "root": "root_id"}):
    thread_id: str = Field("", aliases=("thread",))
    text: str = "hi"

    def perform(self) -> Any:
        return [self.thread_id, self.thread, self.root_id, self.root]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["thread_id", "thread", "root_id", "root"])
async def test_an_alias_is_accepted_and_readable_and_hidden_from_the_schema(name: str):
    assert list(schema(Post)["properties"]) == ["thread_id", "text"]
    assert (await call(Post, {name: "t1"})).structured == ["t1"] * 4


async def test_conflicting_values_are_refused_and_equal_ones_pass():
    result = await call(Post, {"thread_id": "a", "root_id": "b"})
    assert result.error is not None
    assert result.error.kind == "invalid_arguments"
    assert result.error.message == "conflicting values for 'thread_id' via 'thread_id' and 'root_id'"
    assert (await call(Post, {"thread_id": "a", "root_id": "a"})).structured == ["a"] * 4


async def test_an_alias_satisfies_a_required_property():
    class A(Tool, register=False):
        to: str = Field(aliases=("recipient",))

        def perform(self) -> str:
            return self.to

    assert (await call(A, {"recipient": "ann"})).text == "ann"
    result = await call(A, {"recipient": ""})
    assert paths(result) == ["$.to"]


async def test_a_published_alias_stands_in_the_schema_without_the_default():
    class A(Tool, register=False):
        n: int = Field(5, description="N", aliases=("count",), publish_alias=True)

        def perform(self) -> int:
            return self.n

    assert schema(A)["properties"] == {
        "n": {"type": "integer", "description": "N", "default": 5},
        "count": {"type": "integer", "description": "N"},
    }
    assert (await call(A, {"count": 7})).structured == 7
    assert (await call(A, {"n": 8})).structured == 8
    assert (await call(A)).structured == 5


@pytest.mark.parametrize(
    ("aliases", "text"),
    [
        ({"a": "nowhere"}, "Cannot alias unknown property 'nowhere'"),
        ({"a": "b", "b": "a"}, "Cannot alias unknown property 'b'"),
        ({"p": "p"}, "Cannot alias property 'p' to itself"),
        ({"q": "p"}, "Cannot alias 'q' because it is already defined as a property"),
        ({"known": "q"}, "Alias 'known' already points to property 'p'"),
    ],
)
def test_aliases_that_cannot_be_are_refused(aliases: dict[str, str], text: str):
    with pytest.raises(DefinitionError) as refused:

        class A(Tool, register=False, aliases=aliases):
            p: str = Field("", aliases=("known",))
            q: str = ""

            def perform(self) -> None: ...

    assert refused.value.problems[0].message == text


def test_the_same_alias_for_the_same_property_again_is_fine():
    class A(Tool, register=False, aliases={"known": "p"}):
        p: str = Field("", aliases=("known",))

        def perform(self) -> None: ...

    assert A.tool_entry.spec.aliases == {"known": "p"}


def test_a_property_cannot_take_the_name_of_an_alias():
    class Base(Tool, abstract=True, aliases={"a": "p"}):
        p: str = ""

        def perform(self) -> None: ...

    with pytest.raises(DefinitionError) as refused:

        class Below(Base, register=False):
            a: str = ""

    assert refused.value.problems[0].message == "Cannot define property 'a' because it is already defined as an alias"
    with pytest.raises(DefinitionError, match="Cannot define property 'late' because it is already defined"):

        class Same(Tool, register=False):
            p: str = Field("", aliases=("late",))
            late: str = ""

            def perform(self) -> None: ...


def test_aliases_are_inherited_and_may_point_at_inherited_properties():
    class Base(Tool, abstract=True, aliases={"a": "p"}):
        p: str = ""

        def perform(self) -> None: ...

    class Below(Base, register=False, aliases={"b": "a"}):
        pass

    assert Below.tool_entry.spec.aliases == {"a": "p", "b": "p"}


def test_every_fault_of_the_aliases_comes_at_once():
    with pytest.raises(DefinitionError) as refused:

        class A(Tool, register=False, aliases={"a": "x", "b": "y"}):
            def perform(self) -> None: ...

    assert len(refused.value.problems) == 2


async def test_functions_have_aliases_too():
    catalog = Catalog()

    @catalog.tool(aliases={"amount": "n"})
    def double(n: Annotated[int, Field(aliases=("number",))]) -> int:
        return 2 * n

    assert (await call(catalog, {"amount": 2})).structured == 4
    assert (await call(catalog, {"number": 2})).structured == 4
    assert "amount" not in str(catalog.view(ToolContext()).schema("double"))


def test_an_alias_that_names_a_part_of_tool_is_accepted_on_input_and_not_an_attribute():
    class A(Tool, register=False):
        words: str = Field("", aliases=("render",))

        def perform(self) -> str:
            self.render(text=self.words)
            return ""

    assert catalog_of(A)
    assert callable(A(words="x").render)


class Mail(Tool, register=False):
    to: str = Field(aliases=("recipient", "dest"), publish_alias=True)
    copy: str = Field("", aliases=("cc",), publish_alias=True)

    def perform(self) -> str:
        return self.to


class Pair(Tool, register=False, additional_properties=False):
    a: str = Field(aliases=("first",), publish_alias=True)
    b: int = Field(aliases=("second",), publish_alias=True)
    c: bool

    def perform(self) -> str:
        return f"{self.a} {self.b}"


@pytest.mark.parametrize(
    ("tool", "arguments", "fits"),
    [
        (Mail, {"to": "x"}, True),
        (Mail, {"recipient": "x"}, True),
        (Mail, {"dest": "x", "cc": "y"}, True),
        (Mail, {}, False),
        (Mail, {"copy": "x"}, False),
        (Pair, {"a": "x", "b": 1, "c": True}, True),
        (Pair, {"first": "x", "second": 1, "c": True}, True),
        (Pair, {"first": "x", "b": 1, "c": True}, True),
        (Pair, {"first": "x", "c": True}, False),
        (Pair, {"first": "x", "second": 1}, False),
        (Pair, {"first": "x", "second": 1, "c": True, "d": 1}, False),
    ],
)
async def test_what_a_published_alias_takes_fits_the_schema_that_is_published(
    tool: type[Tool], arguments: dict[str, Any], fits: bool
) -> None:
    assert jsonschema.Draft202012Validator(schema(tool)).is_valid(arguments) is fits
    result = await call(tool, arguments)
    assert result.is_error is not fits
    assert "valid under" not in result.text


async def test_a_published_alias_of_a_functions_parameter_may_stand_for_it() -> None:
    catalog = Catalog()

    @catalog.tool(additional_properties=False)
    def send(to: Annotated[str, Field(aliases=("recipient",), publish_alias=True)]) -> str:
        """Send."""
        return to

    view = catalog.view(ToolContext(budget=None))
    [tool] = view.export("mcp")
    for arguments, fits in (({"to": "x"}, True), ({"recipient": "x"}, True), ({}, False), ({"x": 1}, False)):
        assert jsonschema.Draft202012Validator(tool["inputSchema"]).is_valid(arguments) is fits
        assert (await view.call("send", arguments)).is_error is not fits
