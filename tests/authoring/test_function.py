"""Functions: what a signature and a docstring become, what is refused, and the context."""

import dataclasses
import datetime
import enum
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypedDict

import pydantic
import pytest

from pegboard import (
    CallContext,
    Catalog,
    DefinitionError,
    Field,
    ToolContext,
)
from tests.authoring.parts import call, only_spec, schema

LINE = r"tests\.authoring\.test_function:\d+: "

DAY_AND_TIME = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?$"


# ---------------------------------------------------------------- signature and docstring

WORDS = {
    "google": """Count words.

    All of them.

    Args:
        text (str): Any text,
            however long.
        unique: Each word once.

    Returns:
        The number.
    """,
    "numpy": """Count words.

    All of them.

    Parameters
    ----------
    text : str
        Any text,
        however long.
    unique : bool
        Each word once.

    Returns
    -------
    int
        The number.
    """,
    "rst": """Count words.

    All of them.

    :param text: Any text, however long.
    :param bool unique: Each word once.
    :returns: The number.
    """,
}


@pytest.mark.parametrize("style", WORDS)
def test_words_come_from_the_docstring_in_any_common_style(style: str):
    def count(text: str, unique: bool = False) -> int:
        return 0

    count.__doc__ = WORDS[style]
    assert only_spec(count).definition() == {
        "name": "count",
        "description": "Count words.\n\nAll of them.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "Any text, however long."},
                "unique": {"type": "boolean", "description": "Each word once.", "default": False},
            },
            "required": ["text"],
        },
        "outputSchema": {"type": "integer"},
    }


def test_a_function_without_words_or_annotations_is_a_tool_that_takes_anything():
    def f(a, b=None):
        return a

    assert only_spec(f).definition() == {
        "name": "f",
        "inputSchema": {"type": "object", "properties": {"a": {}, "b": {"default": None}}, "required": ["a"]},
    }


def test_annotated_takes_our_field_and_pydantics_and_plain_words():
    def f(
        a: Annotated[str, Field(description="A", pattern="^a")],
        b: Annotated[int, pydantic.Field(description="B", ge=1)],
        c: Annotated[str, "C"] = "c",
        d: int = Field(4, description="D"),
        e: int = pydantic.Field(5, description="E", le=9),
        f: int = Field(minimum=6),
    ) -> None:
        """Do.

        Args:
            a: not this, for it is farther away.
        """

    assert schema(f) == {
        "type": "object",
        "properties": {
            "a": {"type": "string", "description": "A", "pattern": "^a"},
            "b": {"type": "integer", "description": "B", "minimum": 1},
            "c": {"type": "string", "description": "C", "default": "c"},
            "d": {"type": "integer", "description": "D", "default": 4},
            "e": {"type": "integer", "description": "E", "maximum": 9, "default": 5},
            "f": {"type": "integer", "minimum": 6},
        },
        "required": ["a", "b", "f"],
    }


def test_a_functions_strings_may_be_blank_and_its_lists_bare():
    def f(text: str, items: list, table: dict) -> None: ...

    assert schema(f)["properties"] == {
        "text": {"type": "string"},
        "items": {"type": "array", "items": {}},
        "table": {"type": "object", "additionalProperties": True},
    }


class Color(enum.Enum):
    RED = "red"


class Node(pydantic.BaseModel):
    """A node."""

    title: str
    children: list["Node"] = []


class Size(TypedDict, total=False):
    width: int


def test_types_of_every_kind_have_a_schema_without_made_up_titles():
    def f(
        color: Color,
        kind: Literal["a", "b"],
        node: Node,
        size: Size,
        when: datetime.datetime,
        schema: dict[str, int],
        copy: str | None = None,
        title: str = "",
    ) -> None: ...

    drawn = schema(f)
    assert drawn["properties"] == {
        "color": {"$ref": "#/$defs/Color"},
        "kind": {"type": "string", "enum": ["a", "b"]},
        "node": {"$ref": "#/$defs/Node"},
        "size": {"$ref": "#/$defs/Size"},
        "when": {"type": "string", "pattern": DAY_AND_TIME},
        "schema": {"type": "object", "additionalProperties": {"type": "integer"}},
        "copy": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "title": {"type": "string", "default": ""},
    }
    assert drawn["$defs"] == {
        "Color": {"enum": ["red"], "type": "string"} | drawn["$defs"]["Color"],
        "Node": {
            "description": "A node.",
            "type": "object",
            "properties": {
                "title": {"type": "string"},
                "children": {"default": [], "items": {"$ref": "#/$defs/Node"}, "type": "array"},
            },
            "required": ["title"],
        },
        "Size": {"type": "object", "properties": {"width": {"type": "integer"}}},
    }


# ---------------------------------------------------------------- what cannot be


def test_parameters_that_no_object_can_fill_are_refused():
    def positional(a: int, /) -> None: ...

    def star(*args: int) -> None: ...

    def context_first(ctx: ToolContext, /, a: int) -> None: ...

    for fn, name in ((positional, "a"), (star, "args"), (context_first, "ctx")):
        with pytest.raises(DefinitionError, match=LINE + f"parameter '{name}': cannot be given by name"):
            Catalog().tool(fn)


def test_what_is_no_plain_function_is_refused_with_what_to_do():
    class Thing:
        pass

    def unbound(self, text: str) -> str: ...
    def bare(ctx, text: str) -> str: ...
    def count(n: int = "three") -> int: ...  # type: ignore[assignment]
    def flag(on: bool = 0) -> int: ...  # type: ignore[assignment]
    def amount(n: int = True) -> int: ...
    def mode(how: Literal["fast", "sure"] = "slow") -> int: ...  # type: ignore[assignment]
    def one(how: Literal["a"] = "b") -> int: ...  # type: ignore[assignment]
    def either(it: int | str = [1]) -> int: ...  # type: ignore[assignment]

    catalog = Catalog()
    for given, text in (
        (unbound, "parameter 'self': is filled by an object, and here is none"),
        (bare, "parameter 'ctx': has no annotation: write `ctx: ToolContext`"),
        (count, "parameter 'n': the default 'three' does not fit integer"),
        (flag, "parameter 'on': the default 0 does not fit boolean"),
        (amount, "parameter 'n': the default True does not fit integer"),
        (mode, "parameter 'how': the default 'slow' does not fit string"),
        (one, "parameter 'how': the default 'b' does not fit"),
        (either, r"parameter 'it': the default \[1\] does not fit"),
        ("send", "'send' cannot be called; give a function. A name goes in `name='send'`."),
        (Thing, "Thing is a class: derive it from Tool"),
        (lambda x: x, "a lambda has no name: say name='…'"),
        (dict.fromkeys, "has no readable signature|cannot be given by name"),
        ("f", "cannot be called"),
    ):
        with pytest.raises(DefinitionError, match=text):
            catalog.tool(given)  # type: ignore[call-overload]


def test_an_annotation_that_cannot_be_resolved_is_refused_with_its_place():
    def f(a: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821 - meant

    with pytest.raises(DefinitionError, match=LINE + "an annotation cannot be resolved: name 'Missing' is not defined"):
        Catalog().tool(f)


def test_an_annotation_without_a_schema_is_refused_by_the_name_of_its_parameter():
    def f(a: int, lock: threading.Event, other: Callable[[], int]) -> None: ...

    with pytest.raises(DefinitionError) as refused:
        Catalog().tool(f)
    assert [problem.path for problem in refused.value.problems] == ["parameter 'lock'", "parameter 'other'"]

    def g() -> threading.Event: ...

    with pytest.raises(DefinitionError, match=LINE + "the result: the annotation has no JSON Schema"):
        Catalog().tool(g)


def test_an_unknown_option_is_refused_with_the_nearest():
    with pytest.raises(DefinitionError, match=r"unknown tool option 'read_onyl'.*'read_only'"):
        Catalog().tool(read_onyl=True)  # type: ignore[call-overload]


# ---------------------------------------------------------------- the context


async def test_the_context_may_stand_anywhere_and_is_never_in_the_schema():
    def first(ctx: ToolContext, a: int) -> str:
        return f"{type(ctx).__name__} {a}"

    def last(a: int, *, context: ToolContext | None = None) -> str:
        return f"{type(context).__name__} {a}"

    async def middle(a: int, c: CallContext, b: int = 2) -> str:
        return f"{type(c).__name__} {a}"

    for tool, expected in ((first, "ToolContext 1"), (last, "ToolContext 1"), (middle, "CallContext 1")):
        assert set(schema(tool)["properties"]) <= {"a", "b"}
        assert (await call(tool, {"a": 1})).text == expected


@dataclasses.dataclass(frozen=True, kw_only=True)
class MyContext(ToolContext):
    tenant: str = ""


async def test_a_subclass_of_the_context_gives_the_hosts_own_object():
    seen: list[object] = []

    def f(ctx: MyContext) -> str:
        seen.append(ctx)
        return ctx.tenant

    ctx = MyContext(tenant="acme")
    assert (await call(f, {}, ctx)).text == "acme"
    assert seen[0] is ctx


async def test_an_argument_with_the_name_of_the_context_is_refused():
    def plain(ctx: ToolContext) -> str:
        return "ran"

    def open_(ctx: ToolContext, **more: Any) -> str:
        return "ran"

    for tool in (plain, open_):
        result = await call(tool, {"ctx": {"user_id": "eve"}})
        assert result.error is not None
        assert result.error.kind == "invalid_arguments"
        assert "'ctx' is not an argument here" in result.error.message


def test_two_contexts_are_refused():
    def f(a: ToolContext, b: CallContext) -> None: ...

    with pytest.raises(DefinitionError, match="'a' and 'b' both ask for the context"):
        Catalog().tool(f)


# ---------------------------------------------------------------- what is loaded when

PROBE = """
import asyncio, datetime, sys
from typing import Annotated, Literal, Optional
import pegboard
def assert_light():
    heavy = ("pydantic", "docstring_parser", "mcp", "yaml", "limits", "sqlite3", "numpy")
    assert not [name for name in heavy if name in sys.modules], [name for name in heavy if name in sys.modules]
assert_light()
catalog = pegboard.Catalog()
@catalog.tool
def find(text: str, most: int = 3, share: float = 0.5, way: Literal["near", "far"] = "near",
         words: Optional[list[str]] = None, more: dict[str, object] | None = None,
         short: Annotated[str, pegboard.Field(description="A text.", max_length=5)] = "x") -> dict[str, list[int]]:
    return {text: [most]}
class Send(pegboard.Tool):
    \"\"\"Send.\"\"\"
    to: str = pegboard.Field(description="Whom to.")
    async def perform(self, ctx: pegboard.ToolContext) -> str:
        return self.to
catalog.register(Send)
view = catalog.view(pegboard.ToolContext())
assert asyncio.run(view.call("find", {"text": "a"})).structured == {"a": [3]}
assert asyncio.run(view.call("send", {"to": "ann"})).text == "ann"
view.export_bytes("mcp")
assert_light()
@catalog.tool
def f(day: datetime.date) -> int:
    return day.year
assert "pydantic" in sys.modules
"""


def test_pydantic_is_imported_with_the_first_type_that_is_not_plain_and_not_before():
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    assert done.returncode == 0
