"""Every kind of value in every position: as a parameter, optional, in lists, mappings, models and results."""

import contextlib
import dataclasses
import functools
import re
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from fractions import Fraction
from ipaddress import IPv4Address, IPv6Network, ip_network
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    NamedTuple,
    Never,
    NewType,
    NotRequired,
    Required,
    Self,
    TypeVar,
    Unpack,
)
from uuid import UUID
from zoneinfo import ZoneInfo

import annotated_types
import jsonschema
import pydantic
import pytest
from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Discriminator,
    ImportString,
    InstanceOf,
    JsonValue,
    PlainSerializer,
    RootModel,
    Secret,
    SecretStr,
    StringConstraints,
    alias_generators,
)  # fmt: skip
from typing_extensions import TypeAliasType, TypedDict

from pegboard import Catalog, DefinitionError, Tool, ToolContext

T = TypeVar("T")
ID = "12345678-1234-5678-1234-567812345678"
UserId = NewType("UserId", int)
Nested = TypeAliasType("Nested", "int | list[Nested]")


class Colour(Enum):
    RED = "red"


class Digit(Enum):
    ONE = 1


class Word(StrEnum):
    ONE = "one"


class Number(IntEnum):
    ONE = 1


class Mixed(Enum):
    TEXT = "a"
    ONE = 1


class Access(Flag):
    READ = 1
    WRITE = 2


class Planet(Enum):
    EARTH = (5.97, 6.37)


class Half(TypedDict, total=False):
    need: Required[int]
    may: NotRequired[date]


class Point(NamedTuple):
    x: int
    y: float = 0.5


class Box(BaseModel, Generic[T]):
    item: T


class Numbers(RootModel[list[int]]): ...


class Tree(BaseModel):
    value: int
    branches: "list[Tree]" = []


class Cat(BaseModel):
    kind: Literal[Word.ONE]


class Dog(BaseModel):
    kind: Literal["dog"]
    age: int = 3


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    day: date
    names: set[str] = set()
    word: Word = Word.ONE
    pair: tuple[int, int] = (1, 2)


class Camel(BaseModel):
    model_config = ConfigDict(alias_generator=alias_generators.to_camel, populate_by_name=True)
    user_id: int


class Years(BaseModel):
    day: date

    @pydantic.field_serializer("day")
    def _year(self, day: Any):
        return day.year


class Bare(BaseModel):
    value: int

    @pydantic.model_serializer
    def _bare(self):
        return [self.value]


class Either(BaseModel):
    value: int = pydantic.Field(validation_alias=AliasChoices(AliasPath("in", "v"), "v"))


class Within(BaseModel):
    value: int = pydantic.Field(validation_alias=AliasPath("in", "v"))


class Twice(BaseModel):
    value: int

    @pydantic.computed_field
    @property
    def double(self) -> int:
        return self.value * 2


@dataclasses.dataclass(slots=True, kw_only=True, frozen=True)
class Slotted:
    a: int
    tags: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Scaled:
    a: int
    scale: dataclasses.InitVar[int] = 2
    total: int = dataclasses.field(init=False, default=0)

    def __post_init__(self, scale: int) -> None:
        self.total = self.a * scale


Pet = Annotated[Cat | Dog, Discriminator("kind")]
# kind, the JSON of an argument, and what the code sees.
KINDS: list[tuple[Any, Any, Any]] = [
    (int, 3.0, 3),
    (float, 3, 3.0),
    (bool, True, True),
    (str, "a", "a"),
    (int | str, "1", "1"),
    (Any, [1], [1]),
    (bytes, "ab", b"ab"),
    (Literal[Colour.RED], "red", Colour.RED),
    (Literal["green", Colour.RED, 3], "red", Colour.RED),
    (Literal[Colour.RED, Digit.ONE] | None, 1.0, Digit.ONE),
    (Decimal, "1.50", Decimal("1.50")),
    (Fraction, "1/3", Fraction(1, 3)),
    (complex, "1+2j", 1 + 2j),
    (date, "2026-01-02", date(2026, 1, 2)),
    (time, "03:04:05", time(3, 4, 5)),
    (timedelta, "PT90S", timedelta(seconds=90)),
    (datetime, "2026-01-02T03:04:05", datetime.fromisoformat("2026-01-02T03:04:05")),
    (UUID, ID, UUID(ID)),
    (Path, "/a", Path("/a")),
    (ZoneInfo, "Europe/Zurich", ZoneInfo("Europe/Zurich")),
    (IPv4Address, "1.2.3.4", IPv4Address("1.2.3.4")),
    (IPv6Network, "::/64", ip_network("::/64")),
    (re.Pattern[str], "a+", re.compile("a+")),
    (Colour, "red", Colour.RED),
    (Word, "one", Word.ONE),
    (Number, 1, Number.ONE),
    (Mixed, 1, Mixed.ONE),
    (Access, 3, Access(3)),
    (Literal["a", 1, True], 1, 1),
    (Literal[Word.ONE], "one", Word.ONE),
    (UserId, 3, 3),
    (Nested, [1, [2]], [1, [2]]),
    (Annotated[int, annotated_types.Ge(3)], 3, 3),
    (Annotated[int, AfterValidator(lambda n: n + 1)], 1, 2),
    (Annotated[date, pydantic.Strict()], "2026-01-02", date(2026, 1, 2)),
    (list[int], [1], [1]),
    (tuple[int, str], [1, "a"], (1, "a")),
    (tuple[int, ...], [1, 2], (1, 2)),
    (set[int], [1, 1], {1}),
    (frozenset[str], ["a"], frozenset("a")),
    (deque[int], [1], deque([1])),
    (Sequence[int], [1], [1]),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (Mapping[str, int], {"a": 1}, {"a": 1}),
    (dict[int, str], {"1": "a"}, {1: "a"}),
    (dict[Word, date], {"one": "2026-01-02"}, {Word.ONE: date(2026, 1, 2)}),
    (OrderedDict[str, int], {"a": 1}, OrderedDict(a=1)),
    (defaultdict[str, int], {"a": 1}, defaultdict(int, a=1)),
    (JsonValue, {"a": [None]}, {"a": [None]}),
    (Half, {"need": 1, "may": "2026-01-02"}, {"need": 1, "may": date(2026, 1, 2)}),
    (Point, [1, 2.5], Point(1, 2.5)),
    (Box[list[date]], {"item": ["2026-01-02"]}, Box[list[date]](item=[date(2026, 1, 2)])),
    (Numbers, [1], Numbers([1])),
    (Tree, {"value": 1, "branches": [{"value": 2}]}, Tree(value=1, branches=[Tree(value=2)])),
    (Pet, {"kind": "dog"}, Dog(kind="dog")),
    (Pet, {"kind": "one"}, Cat(kind=Word.ONE)),
    (Camel, {"userId": 1}, Camel(user_id=1)),
    (
        Strict,
        {"day": "2026-01-02", "names": ["a", "a"], "word": "one", "pair": [1, 2]},
        Strict(day=date(2026, 1, 2), names={"a"}),
    ),
    (InstanceOf[Dog], {"kind": "dog"}, Dog(kind="dog")),
    (Twice, {"value": 2}, Twice(value=2)),
    (Years, {"day": "2026-01-02"}, Years(day=date(2026, 1, 2))),
    (Bare, {"value": 2}, Bare(value=2)),
    (Either, {"v": 2}, Either.model_validate({"v": 2})),
    (Secret[int], 3, Secret[int](3)),
    (SecretStr, "a", SecretStr("a")),
    (Annotated[str, StringConstraints(pattern="^a", to_upper=True)], "ab", "AB"),
    (Annotated[int, PlainSerializer(lambda value: f"no. {value}")], 3, 3),
    (dict[bool, str], {"true": "a"}, {True: "a"}),
    (dict[Number, str], {"1": "a"}, {Number.ONE: "a"}),
    (Slotted, {"a": 1}, Slotted(a=1)),
    (Scaled, {"a": 2, "scale": 5}, Scaled(2, 5)),
]


def _typed(kind: Any) -> Any:
    make: Any = TypedDict
    return make("Around", {"f": kind})


# By position: the kind there, its JSON around that of the value, and the value in what the code sees.
POSITIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "parameter": (lambda kind: kind, lambda json: json, lambda seen: seen),
    "optional": (lambda kind: kind | None, lambda json: json, lambda seen: seen),
    "list": (lambda kind: list[kind], lambda json: [json], lambda seen: seen[0]),
    "mapping": (lambda kind: dict.__class_getitem__((str, kind)), lambda json: {"k": json}, lambda seen: seen["k"]),
    "model": (
        lambda kind: pydantic.create_model("Around", f=(kind, ...)), lambda json: {"f": json}, lambda seen: seen.f,
    ),
    "dataclass": (
        lambda kind: dataclasses.make_dataclass("Around", [("f", kind)]), lambda json: {"f": json}, lambda seen: seen.f,
    ),
    "typed": (lambda kind: _typed(kind), lambda json: {"f": json}, lambda seen: seen["f"]),
}  # fmt: skip


def view_of(fn: Any) -> Any:
    catalog = Catalog()
    catalog.tool(name="t")(fn)
    return catalog.view(ToolContext(budget=None))


def fits(value: Any, schema: Any) -> None:
    jsonschema.validate(value, schema, cls=jsonschema.Draft202012Validator)


@pytest.mark.slow
@pytest.mark.parametrize("position", POSITIONS)
async def test_every_kind_arrives_and_is_given_there_as_its_published_schema_says(position: str) -> None:
    around, in_json, of_seen = POSITIONS[position]
    for kind, given, expected in KINDS:
        received: list[Any] = []

        async def echo(value: Any, keep: Any) -> Any:
            keep(value)
            return value

        echo.__annotations__ = {"value": around(kind), "return": around(kind)}
        view, arguments = view_of(functools.partial(echo, keep=received.append)), {"value": in_json(given)}
        result = await view.call("t", arguments)
        assert result.error is None, (kind, result.text)
        [seen] = map(of_seen, received)
        assert (seen, type(seen)) == (expected, type(expected)), kind
        [tool] = view.export("mcp")
        fits(arguments, tool["inputSchema"])
        fits(result.structured, tool.get("outputSchema", {}))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (type[int], "no argument can be a class"),
        (Planet, "Planet.EARTH is not a string, number or boolean"),
        (Literal[b"x"], "no argument can have the value b'x'"),
        (Literal[Planet.EARTH], "no argument can have the value <Planet.EARTH"),
        (ImportString, "would let the model import any module"),
        (Callable[[int], int], "no JSON Schema"),
        (Never, "no JSON Schema"),
        (dict[tuple[int, int], str], "no name in a JSON object makes a key that is a tuple"),
        (dict[Mixed, str], "no name in a JSON object makes a Mixed: make it an IntEnum or one of texts"),
        (dict[Literal[1], str], "no name in a JSON object makes the key 1"),
        (Within, "AliasPath('in', 'v') has no plain name that could be published"),
        (bytearray, "no JSON Schema"),
        (Iterable[re.Match[str]], "no JSON Schema"),
    ],
    ids=str,
)
@pytest.mark.parametrize("position", ["parameter", "optional", "list", "mapping", "dataclass", "typed"])
def test_what_no_argument_can_be_is_refused_at_registration(kind: Any, words: str, position: str) -> None:
    def take(value: Any) -> str:
        return ""

    take.__annotations__ = {"value": POSITIONS[position][0](kind), "return": str}
    with pytest.raises(DefinitionError, match=re.escape(words)) as refused:
        Catalog().tool(name="t")(take)
    assert "parameter 'value'" in str(refused.value)


async def test_a_field_of_a_class_tool_is_held_to_the_same() -> None:
    class Take(Tool, register=False):
        """Take."""

        day: Annotated[date, pydantic.Strict()]

        async def perform(self, ctx: ToolContext) -> str:
            return f"{self.day:%d}"

    catalog = Catalog()
    catalog.register(Take)
    assert (await catalog.view(ToolContext(budget=None)).call("take", {"day": "2026-01-02"})).text == "02"
    with pytest.raises(DefinitionError, match="ImportString"):

        class Open(Tool, register=False):
            """Open."""

            what: ImportString[Any]

            async def perform(self, ctx: ToolContext) -> str:
                return ""

        catalog.register(Open)


async def test_forms_of_functions_that_no_argument_can_fill_are_refused_and_three_dots_mean_required() -> None:
    def final(a: Any = 1) -> int:
        return a

    def of_class(a: Any = 1) -> int:
        return a

    final.__annotations__["a"], of_class.__annotations__["a"] = Final[int], ClassVar[int]

    @functools.singledispatch
    def chosen(a: int) -> int:
        return a

    for fn, words in ((final, "write the type alone"), (of_class, "write the type alone"), (chosen, "singledispatch")):
        with pytest.raises(DefinitionError, match=words):
            Catalog().tool(name="t")(fn)

    def dots(a: int = ...) -> int:  # type: ignore[assignment] - as pydantic has it
        return a

    refused = await view_of(dots).call("t", {})
    assert "'a' is required" in refused.text
    assert (await view_of(dots).call("t", {"a": 3})).structured == 3


async def test_the_keys_of_a_typed_dict_are_arguments() -> None:
    class Base(TypedDict):
        place: Annotated[str, "Where it is."]

    class Options(Base, total=False):
        day: Required[date]
        tags: "NotRequired[set[str]]"
        Limit: Annotated[int, pydantic.Field(alias="limit", ge=1)]

    def find(query: str, **options: Unpack[Options]) -> dict[str, Any]:
        """Find.

        Args:
            query: What is sought.
            tags: All of these.
        """
        return {"query": query, **{key: repr(value) for key, value in options.items()}}

    find.__annotations__["options"] = Unpack[Options]
    view = view_of(find)
    assert view.schema("t") == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What is sought."},
            "place": {"type": "string", "description": "Where it is."},
            "day": {"type": "string", "format": "date"},
            "tags": {"type": "array", "description": "All of these.", "items": {"type": "string"}},
            "limit": {"type": "integer", "minimum": 1},
        },
        "required": ["query", "place", "day"],
    }
    given = {"query": "q", "place": "p", "day": "2026-01-02"}
    assert (await view.call("t", given)).structured == {
        "query": "q", "place": "'p'", "day": "datetime.date(2026, 1, 2)",
    }  # fmt: skip
    whole = await view.call("t", {**given, "tags": ["a", "a"], "limit": 3})
    assert (whole.structured["tags"], whole.structured["Limit"]) == ("{'a'}", "3")
    for wrong in ({"day": "2026-01-02"}, {**given, "more": 1}, {**given, "limit": 0}, {**given, "tags": "a"}):
        assert (await view.call("t", {"query": "q", **wrong})).error.kind == "invalid_arguments"


@pytest.mark.parametrize(
    ("unpacked", "words"),
    [(int, "only the keys of a TypedDict"), (TypedDict("Twin", {"query": int}), "is the name of two"),
     (TypedDict("Context", {"ctx": int}), "which is not for the model"),
     (TypedDict("Class", {"kind": type[int]}), "no argument can be a class")],
)  # fmt: skip
def test_what_cannot_be_unpacked_is_refused_at_registration(unpacked: Any, words: str) -> None:
    def find(ctx: ToolContext, query: str, **options: Any) -> str:
        return ""

    find.__annotations__["options"] = Unpack[unpacked]
    with pytest.raises(DefinitionError, match=words):
        Catalog().tool(name="t")(find)


@pytest.mark.parametrize("name", ["ctx", "context"])
def test_a_context_without_its_type_is_not_asked_of_the_model(name: str) -> None:
    made: dict[str, Any] = {}
    exec(f"def plain(a: int, {name}): ...\ndef typed(a: int, {name}: str): ...", made)
    with pytest.raises(DefinitionError, match=f"write `{name}: ToolContext` or `{name}: CallContext`"):
        Catalog().tool(made["plain"])
    catalog = Catalog()
    catalog.tool(made["typed"])
    [entry] = catalog.view(ToolContext()).tools()
    assert list(entry.spec.input_schema["properties"]) == ["a", name]


def test_what_makes_a_context_manager_is_no_tool() -> None:
    @contextlib.contextmanager
    def opened(a: int):
        yield a

    @contextlib.asynccontextmanager
    async def opened_later(a: int):
        yield a

    for fn in (opened, opened_later):
        with pytest.raises(DefinitionError, match=f"'{fn.__name__}' makes a context manager"):
            Catalog().tool(fn)


def test_self_is_nothing_to_a_function() -> None:
    def take(value: Any) -> str:
        return ""

    mine: Any = Self
    take.__annotations__["value"] = list[mine] | None
    with pytest.raises(DefinitionError, match=r"'value'.*name the class"):
        Catalog().tool(name="t")(take)
