"""Class fields: what annotations and `Field` become in the schema, and what they refuse at a call."""

import dataclasses
import enum
import uuid
from datetime import UTC, date, datetime
from typing import Annotated, Any, ClassVar, Literal, Optional, TypedDict

import pydantic
import pytest

from pegboard import DefinitionError, Field, Tool
from tests.authoring.parts import call, make_class, paths, problems, schema


class Echo(Tool, abstract=True, inline=True):
    """Gives back its fields as Python sees them."""

    def perform(self) -> str:
        return repr({name: getattr(self, name) for name in type(self).tool_fields.names})


COMMENT: dict[str, Any] = {"$comment": "why"}


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(pydantic.BaseModel):
    x: int
    y: int = 0


@dataclasses.dataclass
class Span:
    first: date
    last: date | None = None


class Pair(TypedDict):
    left: int
    right: list[int]


# ---------------------------------------------------------------- schema


def test_annotations_become_properties_and_those_without_a_default_are_required():
    class Send(Echo, register=False):
        """Send.

        Args:
            body: The words.
        """

        to: str = Field(description="Address", pattern=r".+@.+")
        subject: str
        body: str = ""
        copies: int = 1
        tags: list[str] = []  # noqa: RUF012 - what users write; each call has its own copy
        urgent: bool | None = None

    assert schema(Send) == {
        "type": "object",
        "properties": {
            "to": {"type": "string", "description": "Address", "pattern": ".+@.+", "minLength": 1},
            "subject": {"type": "string", "minLength": 1},
            "body": {"type": "string", "description": "The words.", "default": ""},
            "copies": {"type": "integer", "default": 1},
            "tags": {"type": "array", "items": {"type": "string"}, "default": []},
            "urgent": {"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": None},
        },
        "required": ["to", "subject"],
    }


def test_any_json_schema_keyword_passes_through():
    class Odd(Echo, register=False):
        a: str = Field(min_length=2, max_length=5, format="email", examples=["x@y"], title="A", **COMMENT)
        b: int = Field(3, ge=1, lt=9, multiple_of=3)
        c: list[int] = Field(min_items=1, unique_items=True)
        d: Any = Field(not_={"type": "string"}, x_unit="m")
        e: str = Field(enum=["x", "y"], read_only=True)

    assert schema(Odd)["properties"] == {
        "a": {
            "type": "string",
            "minLength": 2,
            "maxLength": 5,
            "format": "email",
            "examples": ["x@y"],
            "title": "A",
            "$comment": "why",
        },
        "b": {"type": "integer", "minimum": 1, "exclusiveMaximum": 9, "multipleOf": 3, "default": 3},
        "c": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "uniqueItems": True},
        "d": {"type": ["array", "boolean", "number", "object", "string"], "not": {"type": "string"}, "x_unit": "m"},
        "e": {"type": "string", "enum": ["x", "y"], "readOnly": True},
    }


def test_empty_descriptions_are_omitted():
    class A(Echo, register=False):
        a: str = Field(description="")
        b: str = ""

    assert "description" not in str(schema(A))


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        ({"descripton": "x"}, "unknown keyword 'descripton'. Did you mean 'description'?"),
        ({"alias": "x"}, "Did you mean 'aliases'?"),
        ({"minmum": 1}, "Did you mean 'minimum'?"),
        ({"enum": {1, 2}}, "needs a JSON value"),
        ({"default_factory": list}, "write default=[…]"),
    ],
)
def test_a_keyword_that_says_nothing_is_refused(keywords: dict, text: str):
    with pytest.raises(DefinitionError) as refused:
        Field(**keywords)
    assert text in str(refused.value)


def test_a_field_says_the_same_within_annotated():
    class A(Echo, register=False):
        a: Annotated[str, Field(description="A", aliases=("b",))]
        c: Annotated[int, pydantic.Field(description="C", ge=1)] = 2

    assert schema(A)["properties"] == {
        "a": {"type": "string", "description": "A", "minLength": 1},
        "c": {"type": "integer", "description": "C", "minimum": 1, "default": 2},
    }


def test_class_variables_and_private_names_are_no_parameters():
    class A(Echo, register=False):
        limit: ClassVar[int] = 3
        _memory: int = 0
        a: str

    assert list(schema(A)["properties"]) == ["a"]


@pytest.mark.parametrize("name", ["render", "perform", "ctx", "extra", "rename", "rendered"])
def test_a_field_that_would_hide_a_part_of_tool_is_refused(name: str):
    with pytest.raises(DefinitionError, match=rf"{name}: would hide Tool.{name}"):
        make_class(Echo, body={"__annotations__": {name: str}})


def test_a_field_without_an_annotation_is_refused():
    with pytest.raises(DefinitionError, match=r"to: Field\(…\) needs an annotation: to: str = Field\(…\)"):

        class A(Echo, register=False):
            to = Field(description="x")  # pyright: ignore[reportGeneralTypeIssues] - what is refused


def test_an_annotation_that_cannot_be_resolved_is_refused_with_its_place():
    with pytest.raises(DefinitionError, match=rf"{__name__}:\d+: an annotation cannot be resolved.*'Missing'"):

        class A(Echo, register=False):
            a: "Missing"  # type: ignore[name-defined]  # noqa: F821 - meant


def test_an_annotation_without_a_schema_is_refused_by_the_name_of_its_parameter():
    with pytest.raises(DefinitionError, match=r"parameter 'b': the annotation has no JSON Schema"):

        class A(Echo, register=False):
            a: str
            b: threading_lock


class threading_lock:
    pass


# ---------------------------------------------------------------- inheritance


def test_fields_are_inherited_and_overridden():
    class Base(Echo, abstract=True):
        a: str = Field(description="A")
        b: int = Field(1, description="B", minimum=0)

    class Below(Base, register=False):
        b = 2
        c: str = "c"

    class Other(Base, register=False):
        a: int = Field(7, description="Number")  # pyright: ignore[reportIncompatibleVariableOverride] - meant

    assert schema(Below)["properties"] == {
        "a": {"type": "string", "description": "A", "minLength": 1},
        "b": {"type": "integer", "description": "B", "minimum": 0, "default": 2},
        "c": {"type": "string", "default": "c"},
    }
    assert schema(Other)["properties"] == {
        "a": {"type": "integer", "description": "Number", "default": 7},
        "b": {"type": "integer", "description": "B", "minimum": 0, "default": 1},
    }
    assert "required" not in schema(Other)


# ---------------------------------------------------------------- required and blank


class Required(Echo, register=False):
    text: str
    maybe: str | None
    kind: Literal["a", "b", None]
    anything: Any
    items: list[str]
    blank: str = Field(allow_blank=True)


VALID = {"text": "x", "maybe": "x", "kind": "a", "anything": 0, "items": [], "blank": ""}


async def test_a_required_list_may_be_empty_and_a_string_only_where_it_is_allowed():
    result = await call(Required, VALID)
    assert result.text == repr(VALID)


@pytest.mark.parametrize("name", list(VALID))
async def test_required_means_present_and_not_null(name: str):
    missing = await call(Required, {key: value for key, value in VALID.items() if key != name})
    null = await call(Required, {**VALID, name: None})
    assert paths(missing) == [f"$.{name}"]
    assert paths(null) == [f"$.{name}"]


@pytest.mark.parametrize("name", ["text", "maybe"])
async def test_a_required_string_cannot_be_blank(name: str):
    result = await call(Required, {**VALID, name: ""})
    assert result.error is not None
    assert result.error.kind == "invalid_arguments"
    assert f"$.{name}: can't be blank" in result.error.message


async def test_a_string_with_a_default_may_be_blank():
    class A(Echo, register=False):
        a: str = "x"

    assert (await call(A, {"a": ""})).text == "{'a': ''}"


# ---------------------------------------------------------------- collections


@pytest.mark.parametrize("bare", [list, tuple, set, Optional[list], list | None, Annotated[list, "x"]])  # noqa: UP045
def test_a_collection_without_a_type_is_refused(bare: Any):
    with pytest.raises(DefinitionError) as refused:
        make_class(Echo, body={"__annotations__": {"items": bare}})
    assert "Type is required for a collection" in str(refused.value)
    assert refused.value.problems[0].message == "Type is required for a collection"
    assert refused.value.problems[0].path == "items"


async def test_a_default_list_is_each_calls_own():
    class Grow(Tool, register=False):
        items: list[str] = []  # noqa: RUF012 - what users write

        def perform(self) -> int:
            self.items.append("x")
            return len(self.items)

    for _ in range(3):
        assert (await call(Grow)).structured == 1
    by_hand = [Grow().perform() for _ in range(3)]
    assert by_hand == [1, 1, 1]
    assert schema(Grow)["properties"]["items"]["default"] == []


# ---------------------------------------------------------------- types beyond JSON


@pytest.mark.parametrize(
    ("annotation", "given", "seen"),
    [
        (datetime, "2026-07-28T10:00:00Z", datetime(2026, 7, 28, 10, tzinfo=UTC)),
        (date, "2026-07-28", date(2026, 7, 28)),
        (Color, "red", Color.RED),
        (uuid.UUID, "12345678-1234-5678-1234-567812345678", uuid.UUID("12345678-1234-5678-1234-567812345678")),
        (Point, {"x": 1}, Point(x=1)),
        (list[Point], [{"x": 1, "y": 2}], [Point(x=1, y=2)]),
        (Span, {"first": "2026-01-01"}, Span(date(2026, 1, 1))),
        (Pair, {"left": 1, "right": [2.0]}, {"left": 1, "right": [2]}),
        (list[Pair], [{"left": 1, "right": []}], [{"left": 1, "right": []}]),
        (Literal["a", 1], 1.0, 1),
        (Optional[Color], "blue", Color.BLUE),  # noqa: UP045 - the older spelling is meant
        (Color | None, "blue", Color.BLUE),
        (int, 3.0, 3),
        (int | None, 3.0, 3),
        (list[int], [3.0], [3]),
        (dict[str, int], {"a": 3.0}, {"a": 3}),
        (float, 3, 3.0),
        (tuple[int, str], [1, "a"], (1, "a")),
        (set[str], ["a"], {"a"}),
        (Annotated[str, pydantic.StringConstraints(strip_whitespace=True)], " a ", "a"),
        (dict[str, Any], {"a": 3.0}, {"a": 3.0}),
    ],
)
async def test_arguments_arrive_as_the_python_type_of_their_annotation(annotation: Any, given: Any, seen: Any):
    received: list[Any] = []
    body = {"__annotations__": {"value": annotation}, "perform": lambda self: received.append(self.value)}
    made = make_class(body=body)
    assert (await call(made, {"value": given})).error is None
    assert received == [seen]
    assert type(received[0]) is type(seen)


@pytest.mark.parametrize(
    ("annotation", "given", "path"),
    [
        (datetime, "yesterday", "$.value"),
        (Color, "green", "$.value"),
        (Point, {"y": 1}, "$.value.x"),
        (uuid.UUID, "1", "$.value"),
        (int, "5", "$.value"),
        (int, 3.5, "$.value"),
        (Literal["a"], "b", "$.value"),
    ],
)
async def test_the_schema_judges_before_anything_is_coerced(annotation: Any, given: Any, path: str):
    made = make_class(Echo, body={"__annotations__": {"value": annotation}})
    result = await call(made, {"value": given})
    assert result.error is not None
    assert result.error.kind == "invalid_arguments"
    assert paths(result) == [path]


def even(value: int) -> int:
    if value % 2:
        raise ValueError("must be even")
    return value


async def test_what_a_type_asks_beyond_its_schema_is_an_invalid_argument_too():
    class A(Echo, register=False):
        value: Annotated[int, pydantic.AfterValidator(even)]

    result = await call(A, {"value": 3})
    assert result.error is not None
    assert result.error.kind == "invalid_arguments"
    assert result.error.message == (
        "Invalid arguments: $.value: Value error, must be even. Correct them and call again."
    )
    assert problems(result) == [
        {"path": "$.value", "rule": "value_error", "message": "Value error, must be even", "value": "3"}
    ]


async def test_defaults_beyond_json_arrive_as_they_were_written():
    marker = object()

    class A(Tool, register=False, inline=True):
        color: Color = Color.RED
        point: Point = Point(x=1)
        when: datetime | None = None
        never: date = None  # type: ignore[assignment] - what users write
        thing: Any = marker

        def perform(self) -> bool:
            return [self.color, self.point, self.when, self.never, self.thing] == [
                Color.RED,
                Point(x=1),
                None,
                None,
                marker,
            ]

    assert (await call(A)).structured is True
    assert schema(A)["properties"]["color"]["default"] == "red"
    assert "default" not in schema(A)["properties"]["thing"]


def test_a_default_that_its_type_does_not_take_is_refused():
    with pytest.raises(DefinitionError, match=r"parameter 'when': the default 'never' does not fit"):

        class A(Echo, register=False):
            when: datetime = "never"  # type: ignore[assignment]


# ---------------------------------------------------------------- additional properties


async def test_unknown_arguments_are_refused_though_the_schema_does_not_say_so():
    class A(Echo, register=False):
        a: str = ""

    assert "additionalProperties" not in schema(A)
    result = await call(A, {"b": 1})
    assert paths(result) == ["$.b"]


async def test_additional_properties_arrive_in_extra_as_they_are_and_aliases_never_among_them():
    class A(Tool, register=False, additional_properties=True):
        a: int = Field(0, aliases=("x",))

        def perform(self) -> Any:
            return {"a": self.a, "extra": self.extra}

    assert schema(A)["additionalProperties"] is True
    assert (await call(A, {"x": 2, "more": 3.0, "list": [1]})).structured == {
        "a": 2,
        "extra": {"more": 3.0, "list": [1]},
    }


async def test_additional_properties_may_have_a_schema():
    class A(Tool, register=False, additional_properties={"type": "integer"}):
        def perform(self) -> Any:
            return self.extra

    assert (await call(A, {"more": 3})).structured == {"more": 3}
    result = await call(A, {"more": "x"})
    assert paths(result) == ["$.more"]


async def test_without_additional_properties_extra_is_empty():
    class A(Tool, register=False):
        a: str = ""

        def perform(self) -> Any:
            return self.extra

    assert (await call(A, {"a": "x"})).structured == {}


# ---------------------------------------------------------------- by hand


def test_an_instance_by_hand_takes_properties_and_aliases_and_refuses_the_rest():
    class A(Echo, register=False):
        to: str = Field(aliases=("recipient",))
        when: date = date(2026, 1, 1)

    made = A(recipient="ann", when="2026-02-02")  # type: ignore[call-arg]
    assert (made.to, made.when, made.extra) == ("ann", date(2026, 2, 2), {})
    with pytest.raises(TypeError, match=r"missing arguments \['to'\], unknown arguments \['tow'\]"):
        A(tow="x")  # type: ignore[call-arg]


def test_repr_shows_arguments_blocks_and_error():
    class A(Echo, register=False):
        to: str
        n: int = 1

    made = A(to="ann")
    assert repr(made) == "<A(to='ann', n=1) 0 blocks>"
    made.render(text="x")
    made.report_error("no luck")
    assert repr(made) == "<A(to='ann', n=1) 1 blocks, error='no luck'>"


# ---------------------------------------------------------------- what was said of further arguments


async def test_no_further_arguments_is_published_where_it_was_said_and_holds_either_way():
    class Said(Echo, register=False, additional_properties=False):
        a: int

    class Below(Said, register=False):
        b: int = 0

    class Unsaid(Echo, register=False):
        a: int

    class Open(Echo, register=False, additional_properties=True):
        a: int

    class Closed(Open, register=False, additional_properties=False):
        pass

    published = [schema(cls).get("additionalProperties") for cls in (Said, Below, Unsaid, Open, Closed)]
    assert published == [False, False, None, True, False]
    for cls in (Said, Below, Unsaid, Closed):
        assert paths(await call(cls, {"a": 1, "x": 2})) == ["$.x"]


@pytest.mark.parametrize("blank", [" ", "   ", "\t\n", "\u00a0\u2003"])
async def test_white_space_alone_is_blank(blank: str):
    class Said(Tool, register=False):
        text: str
        other: str = Field(pattern=".*")
        may: str = Field(allow_blank=True)
        short: str = Field(min_length=0)
        free: str = "x"

        def perform(self) -> str:
            return "ran"

    result = await call(Said, {"text": blank, "other": blank, "may": blank, "short": blank, "free": blank})
    assert result.error is not None
    assert result.error.kind == "invalid_arguments"
    assert paths(result) == ["$.text", "$.other"]
    assert "$.text: can't be blank" in result.error.message
    fine = await call(Said, {"text": " a ", "other": "b", "may": blank, "short": blank, "free": blank})
    assert fine.text == "ran"
    # By hand nothing is judged.
    assert Said(text=blank, other=blank, may=blank, short=blank).text == blank
