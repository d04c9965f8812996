"""Signatures of other frameworks: aliases, floats, sets, flags and plain classes, wherever they stand."""

import numbers
import threading
from collections import ChainMap, UserDict, UserList, UserString
from collections.abc import Collection, Hashable, KeysView, ValuesView
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Flag, IntFlag
from types import MappingProxyType, SimpleNamespace
from typing import Annotated, Any, Protocol, TypedDict

import attrs
import jsonschema
import pydantic
import pytest
from pydantic import AliasChoices, BaseModel

from pegboard import Catalog, DefinitionError, Tool, ToolContext


class Access(Flag):
    READ = 1
    WRITE = 2
    OWN = 8


class Bits(IntFlag):
    ONE = 1
    TWO = 2


class Model(BaseModel):
    ratio: float = 0.5
    names: set[str] = set()
    access: Access = Access.READ


@dataclass
class Data:
    ratio: float
    names: frozenset[str]
    access: Access


class Typed(TypedDict):
    ratio: float
    names: set[int]


class Plain:
    kind: str = "plain"

    def __init__(self, size: int) -> None:
        self.size = size
        self._hidden = "hidden"


class Guard(AbstractContextManager["Guard"]):
    def __exit__(self, *exc: object) -> None: ...


RW = Access.READ | Access.WRITE


def view_of(fn: Any) -> Any:
    catalog = Catalog()
    catalog.tool(name="t")(fn)
    return catalog.view(ToolContext())


def fits(value: Any, schema: Any) -> None:
    jsonschema.validate(value, schema, cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    ("kind", "given", "seen"),
    [
        (float, 1, 1.0),
        (float | None, 1, 1.0),
        (list[float], [1, 2.5], [1.0, 2.5]),
        (dict[str, float], {"a": 1}, {"a": 1.0}),
        (Annotated[float, pydantic.Field(ge=0)], 1, 1.0),
        (set[int], [1, 1, 2], {1, 2}),
        (frozenset[str] | None, ["a", "a"], frozenset({"a"})),
        (list[set[int]], [[1, 1]], [{1}]),
        (Access, 3, RW),
        (Access | None, 11, RW | Access.OWN),
        (list[Access], [3, 0], [RW, Access(0)]),
        (Bits, 3, Bits.ONE | Bits.TWO),
        (Model, {"ratio": 1, "names": ["a", "a"], "access": 3}, Model(ratio=1.0, names={"a"}, access=RW)),
        (Data, {"ratio": 1, "names": ["a", "a"], "access": 3}, Data(1.0, frozenset({"a"}), RW)),
        (Typed, {"ratio": 1, "names": [1, 1]}, {"ratio": 1.0, "names": {1}}),
    ],
    ids=str,
)
async def test_numbers_sets_and_flags_arrive_as_python_has_them_and_fit_what_is_published(
    kind: Any, given: Any, seen: Any
) -> None:
    received: list[Any] = []

    def echo(value: Any) -> Any:
        received.append(value)
        return value

    echo.__annotations__ = {"value": kind, "return": kind}
    view = view_of(echo)
    result = await view.call("t", {"value": given})
    assert result.error is None, result.text
    assert (received, repr(received)) == ([seen], repr([seen]))
    [tool] = view.export("mcp")
    fits({"value": given}, tool["inputSchema"])
    fits(result.structured, tool["outputSchema"])


@pytest.mark.parametrize(
    ("kind", "given"), [(Access, 16), (Access, 4), (Access, -1), (Bits, 4), (float, 10**400)], ids=list("abcde")
)
async def test_what_is_no_combination_and_no_float_never_runs_the_tool(kind: Any, given: Any) -> None:
    runs: list[Any] = []

    def keep(value: Any) -> None:
        runs.append(value)

    keep.__annotations__ = {"value": kind, "return": None}
    result = await view_of(keep).call("t", {"value": given})
    assert result.error is not None
    assert (result.error.kind, runs) == ("invalid_arguments", [])


async def test_an_alias_of_pydantic_is_the_published_name_and_the_one_that_is_taken() -> None:
    def send(
        a: Annotated[int, pydantic.Field(alias="from", ge=1)],
        b: Annotated[float | None, pydantic.Field(validation_alias="to", description="Where to.")] = None,
        c: set[int] = pydantic.Field(default_factory=set, alias="class"),  # noqa: B008 - pydantic's way
        d: int = pydantic.Field(4, alias="import"),
    ) -> list[Any]:
        return [a, b, sorted(c), d]

    view = view_of(send)
    [tool] = view.export("mcp")
    assert list(tool["inputSchema"]["properties"]) == ["from", "to", "class", "import"]
    assert tool["inputSchema"]["required"] == ["from"]
    assert tool["inputSchema"]["properties"]["from"]["minimum"] == 1
    assert tool["inputSchema"]["properties"]["to"]["description"] == "Where to."
    assert (await view.call("t", {"from": 1, "to": 2, "class": [3, 3]})).structured == [1, 2.0, [3], 4]
    assert (await view.call("t", {"from": 1})).structured == [1, None, [], 4]
    refused = await view.call("t", {"a": 1})
    assert refused.error is not None
    assert refused.error.kind == "invalid_arguments"


def test_an_alias_that_would_do_nothing_or_take_what_is_taken_is_refused_at_registration() -> None:
    def inside(a: list[Annotated[int, pydantic.Field(alias="b")]]) -> None: ...
    def choices(a: Annotated[int, pydantic.Field(validation_alias=AliasChoices("b", "c"))]) -> None: ...
    def twins(a: Annotated[int, pydantic.Field(alias="b")], b: int) -> None: ...
    def context(ctx: ToolContext, a: Annotated[int, pydantic.Field(alias="ctx")]) -> None: ...

    for fn, text in ((inside, "alias"), (choices, "one name"), (twins, "two parameters"), (context, "not for the")):
        with pytest.raises(DefinitionError, match=text):
            view_of(fn)
    with pytest.raises(DefinitionError, match="is pydantic's"):

        class A(Tool, register=False):  # pyright: ignore[reportUnusedClass] - refused
            a: Annotated[int, pydantic.Field(alias="b")]

            def perform(self) -> None: ...


@pytest.mark.parametrize(
    ("kind", "wrap"),
    [
        (Plain, lambda one: one),
        (Plain | None, lambda one: one),
        (list[Plain], lambda one: [one]),
        (dict[str, Plain], lambda one: {"a": one}),
        (Any, lambda one: one),
        (Any, lambda one: [one]),
    ],
    ids=["itself", "optional", "list", "dict", "unannotated", "list-unannotated"],
)
async def test_an_instance_of_a_plain_class_is_given_by_its_public_fields(kind: Any, wrap: Any) -> None:
    def make() -> Any:
        return wrap(Plain(3))

    make.__annotations__ = {"return": kind}
    view = view_of(make)
    result = await view.call("t")
    assert result.structured == wrap({"kind": "plain", "size": 3}), result.text
    [tool] = view.export("mcp")
    if kind is not Any:
        fits(result.structured, tool["outputSchema"])


@attrs.define
class Attrs:
    size: int
    _kept: int = 1


class Slots:
    __slots__ = ("_kept", "later", "size")

    def __init__(self) -> None:
        self.size, self._kept = 3, 1


@pytest.mark.parametrize(
    ("kind", "value", "given"),
    [
        (Attrs, Attrs(3), {"size": 3}),
        (Slots, Slots(), {"size": 3}),
        (SimpleNamespace, SimpleNamespace(size=3), {"size": 3}),
        (ChainMap[str, int], ChainMap({"a": 1}), {"a": 1}),
        (UserDict[str, int], UserDict({"a": 1}), {"a": 1}),
        (MappingProxyType[str, int], MappingProxyType({"a": 1}), {"a": 1}),
        (range, range(2), [0, 1]),
        (UserList[int], UserList([1]), [1]),
        (KeysView[str], {"a": 1}.keys(), ["a"]),
        (ValuesView[int], {"a": 1}.values(), [1]),
        (Collection[int], (1, 2), [1, 2]),
        (Collection[str], {"a": 1}, {"a": 1}),
        (numbers.Real, 1.5, 1.5),
        (Hashable, "a", "a"),
    ],
)
@pytest.mark.parametrize("position", ["itself", "optional", "list", "dict"])
async def test_a_collection_that_pydantic_does_not_know_is_given_as_what_it_is(
    kind: Any, value: Any, given: Any, position: str
) -> None:
    annotations = {"itself": kind, "optional": kind | None, "list": list[kind], "dict": dict[str, kind]}
    wrap: Any = {"list": lambda one: [one], "dict": lambda one: {"k": one}}.get(position, lambda one: one)

    def make() -> Any:
        return wrap(value)

    make.__annotations__ = {"return": annotations[position]}
    view = view_of(make)
    result = await view.call("t")
    assert result.structured == wrap(given), result.text
    [tool] = view.export("mcp")
    fits(result.structured, tool.get("outputSchema", {}))


class Runs(Protocol):
    def run(self) -> int: ...


REFUSED_RESULTS = [
    threading.Event, Catalog, Guard, list[Guard], Runs, list[Runs], type[int],
    list[type], list[bytearray], memoryview, UserString, slice,
]  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED_RESULTS)
def test_a_result_that_is_no_data_is_refused_at_registration(kind: Any) -> None:
    def make() -> None: ...

    make.__annotations__ = {"return": kind}
    with pytest.raises(DefinitionError, match="the result: the annotation has no JSON Schema"):
        view_of(make)


@pytest.mark.parametrize("value", [threading.Event(), iter([1]), Guard()], ids=lambda value: type(value).__name__)
async def test_what_is_no_data_is_not_told_by_its_attributes_where_nothing_was_promised(value: Any) -> None:
    def make():
        return value

    result = await view_of(make).call("t")
    assert result.error is not None
    assert result.error.kind == "output_invalid"
