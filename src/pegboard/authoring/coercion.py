"""Coercion: converts validated JSON to the Python types of annotations; pydantic does all but the plain ones."""

from __future__ import annotations

import functools
import sys
import types
import typing
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeGuard, Union, get_args, get_origin

import typing_extensions

from pegboard.core.json_text import json_bytes
from pegboard.core.schema import ArgumentProblem, copied, json_path, shown
from pegboard.lazy import LazyModule
from pegboard.model.error import CallError
from pegboard.model.json_types import is_object

if TYPE_CHECKING:
    import pydantic
    import pydantic.fields
else:
    pydantic = LazyModule("pydantic")


Coerce = Callable[[Any], Any]
_SCALARS = (str, int, float, bool, type(None))
_NO_SCHEMAS = frozenset({"metadata", "serialization", "config", "cls"})
_NAME_TYPES = (str, object, Any)
_JSON_TYPES = (str, bool, type(None), object, Any, list, dict)


def is_pydantic_field(value: object) -> TypeGuard[pydantic.fields.FieldInfo]:
    """Tell whether a value is pydantic's `Field(…)`, without importing pydantic."""
    known = any(kind.__module__ == "pydantic.fields" for kind in type(value).__mro__)
    return known and isinstance(value, pydantic.fields.FieldInfo)


def is_json(annotation: Any, *, whole: bool = False) -> bool:
    """Tell whether a JSON value needs no conversion for the annotation.

    Numbers in arguments need one: JSON Schema accepts 3.0 as an integer, and 3 where the code wants a `float`. `whole`
    says that numbers have their exact type.
    """
    origin = get_origin(annotation)
    if origin is Annotated:
        # Constraints are in the schema; other metadata may change the value.
        inner, *extras = get_args(annotation)
        return all(map(is_pydantic_field, extras)) and is_json(inner, whole=whole)
    if origin is dict:
        # Names in JSON are strings; other key types are parsed from them.
        key, value = get_args(annotation)
        return any(key is plain for plain in _NAME_TYPES) and is_json(value, whole=whole)
    if origin in (Union, types.UnionType, list):
        return all(is_json(part, whole=whole) for part in get_args(annotation))
    if origin is Literal:
        return all(type(part) in (str, bool, type(None)) for part in get_args(annotation))
    return (whole and annotation in (int, float)) or any(annotation is plain for plain in _JSON_TYPES)


def coercion(name: str, annotation: Any) -> Coerce | None:
    """Return a function that converts a validated argument to its Python type; `None` if none is needed."""
    if annotation is int:
        return to_int
    if annotation is float:
        return functools.partial(_to_float, name)
    if is_json(annotation):
        return None
    adapter = pydantic.TypeAdapter(annotation)
    _check_fillable(adapter.core_schema)
    members = _members_in_literals(adapter.core_schema)

    def coerce(value: Any) -> Any:
        try:
            return adapter.validate_python(value)
        except pydantic.ValidationError as error:
            refused = error
        for choice in members:
            try:
                return adapter.validate_python(_with_members(value, refused, choice))
            except pydantic.ValidationError:
                continue
        # A strict model accepts dates and enum literals as strings only in JSON mode.
        try:
            return adapter.validate_json(json_bytes(value))
        except (pydantic.ValidationError, ValueError):
            raise _invalid(name, refused) from None

    return coerce


def _members_in_literals(core_schema: Any) -> list[dict[tuple[type, Any], Enum]]:
    """Return the members of plain enums in literals, by type and value; one dict for each that has the same value.

    pydantic accepts the members themselves only, although it publishes their values.
    """
    choices: list[dict[tuple[type, Any], Enum]] = []
    for step in _steps(core_schema):
        for expected in step["expected"] if step.get("type") == "literal" else ():
            if not isinstance(expected, Enum) or isinstance(expected, _SCALARS):
                continue
            value: Any = expected.value
            key = (typing.cast("type[object]", type(value)), value)
            if all(known.get(key) is not expected for known in choices):
                free = next((known for known in choices if key not in known), None)
                if free is None:
                    choices.append(free := {})
                free[key] = expected
    return choices


def _steps(core_schema: Any) -> Iterator[dict[str, Any]]:
    """Yield the parts of a core schema, in the order of the annotation."""
    stack: list[Any] = [core_schema]
    seen: set[int] = set()
    while stack:
        at = stack.pop()
        if is_object(at):
            if id(at) not in seen:
                seen.add(id(at))
                yield at
                stack.extend(reversed([inner for key, inner in at.items() if key not in _NO_SCHEMAS]))
        elif isinstance(at, list | tuple):
            stack.extend(reversed(typing.cast("list[Any]", at)))


def _with_members(value: Any, refused: pydantic.ValidationError, members: Mapping[tuple[type, Any], Enum]) -> Any:
    """Return a value where the members of an enum replace the values that a literal refused."""
    holder = [copied(value)]
    for fault in refused.errors(include_url=False, include_context=False):
        value_given = to_int(fault["input"])
        if fault["type"] != "literal_error" or not isinstance(value_given, _SCALARS):
            continue
        member = members.get((type(value_given), value_given))
        if member is not None:
            _place(holder, fault["loc"], member)
    return holder[0]


def _place(holder: list[Any], loc: Sequence[int | str], member: Enum) -> None:
    """Put a member at the location of an error, which also names the branches of unions."""
    into: Any = holder
    at: int | str = 0
    for step in loc:
        inner: Any = into[at]
        if (is_object(inner) and step in inner) or (isinstance(inner, list) and isinstance(step, int)):
            into = typing.cast("Any", inner)
            at = step
    into[at] = member


class UnfillableError(Exception):
    """No JSON value can produce a value of this type."""


def _check_fillable(core_schema: Any) -> None:
    """Refuse a type that is published as JSON although no matching JSON produces a value of it.

    Raises:
        UnfillableError: with a suggestion.
    """
    # Each schema, with whether its model accepts fields by name in spite of their aliases.
    stack: list[tuple[Any, bool]] = [(core_schema, False)]
    seen: set[int] = set()
    while stack:
        at, by_name = stack.pop()
        if is_object(at):
            if id(at) not in seen:
                seen.add(id(at))
                if fault := _fault_of(at) or (None if by_name else _unnamed(at)):
                    raise UnfillableError(fault)
                if isinstance(at.get("config"), dict):
                    by_name = bool(at["config"].get("validate_by_name"))
                stack.extend((inner, by_name) for key, inner in at.items() if key not in _NO_SCHEMAS)
        elif isinstance(at, list | tuple):
            stack.extend((inner, by_name) for inner in typing.cast("list[Any]", at))


_FIELDS = ("model-field", "dataclass-field", "typed-dict-field")


def _unnamed(step: dict[str, Any]) -> str | None:
    """Return the fault of a field that is read from inside another property, which the schema cannot express."""
    paths: Any = step.get("validation_alias") if step.get("type") in _FIELDS else None
    if not isinstance(paths, list):
        return None
    paths = typing.cast("list[Any]", paths)
    if any(isinstance(path, list) and len(typing.cast("list[Any]", path)) == 1 for path in paths):
        return None
    written = f"AliasPath({', '.join(map(repr, paths))})"
    return f"{written} has no plain name that could be published: give the field one, e.g. among AliasChoices"


def _fault_of_key(step: dict[str, Any]) -> str | None:
    """Return why no string key of a JSON object can become a key of this type."""
    match step.get("type"):
        case "tuple" | "list" | "set" | "frozenset" | "dict" | "model" | "dataclass" | "typed-dict" as kind:
            return f"no name in a JSON object makes a key that is a {kind}: take a list of pairs"
        case "enum" if step.get("sub_type") != "int" and not all(
            isinstance(value.value, str) for value in step["members"]
        ):
            return f"no name in a JSON object makes a {step['cls'].__name__}: make it an IntEnum or one of texts"
        case "literal" if unfit := next((value for value in step["expected"] if not isinstance(value, str)), None):
            return f"no name in a JSON object makes the key {unfit!r}: names are texts"
        case _:
            return None


def _fault_of(step: dict[str, Any]) -> str | None:
    match step.get("type"):
        case "is-subclass":
            return f"no argument can be a class: take its name, e.g. as a Literal, and look up {step['cls']!r} in it"
        case "enum" if unfit := next(
            (member for member in step["members"] if not isinstance(member.value, _SCALARS)), None
        ):
            return f"the value of {unfit} is not a string, number or boolean, so no argument can mean it: use one"
        case "literal" if unfit := next((member for member in step["expected"] if not _is_scalar(member)), None):
            return f"no argument can have the value {unfit!r}: use a string, or an enum member whose value is a string"
        case "dict":
            return _fault_of_key(step.get("keys_schema", {}))
        case "function-plain" | "function-before" if _is_import(step["function"]["function"]):
            return "ImportString would let the model import any module: take a name, and look up what it may mean"
        case _:
            return None


def _is_scalar(value: object) -> bool:
    return isinstance(value.value if isinstance(value, Enum) else value, _SCALARS)


def _is_import(function: Any) -> bool:
    name, module = getattr(function, "__name__", ""), getattr(function, "__module__", "")
    return name == "import_string" and module.startswith("pydantic.")


def to_int(value: Any) -> Any:
    """Convert 3.0, which JSON Schema accepts as an integer, to an int."""
    return int(value) if type(value) is float else value


def _to_float(name: str, value: Any) -> Any:
    """Convert a whole number to a float; JSON has one kind of number."""
    if type(value) is not int:
        return value
    try:
        return float(value)
    except OverflowError:
        problem = ArgumentProblem(json_path([name]), "type", "the number is too large for a float", shown(value))
        raise _refused([problem]) from None


def sparing_none(coerce: Coerce) -> Coerce:
    """Skip the conversion of `None`: as a default it means "not given", whatever the type."""
    return lambda value: None if value is None else coerce(value)


def _invalid(name: str, error: pydantic.ValidationError) -> CallError:
    problems = [
        ArgumentProblem(json_path([name, *fault["loc"]]), fault["type"], fault["msg"], shown(fault["input"]))
        for fault in error.errors(include_url=False, include_context=False)
    ]
    return _refused(problems)


def _refused(problems: list[ArgumentProblem]) -> CallError:
    listed = "; ".join(f"{problem.path}: {problem.message}" for problem in problems[:10])
    return CallError(
        "invalid_arguments",
        f"Invalid arguments: {listed}. Correct them and call again.",
        details={"problems": [problem._asdict() for problem in problems]},
    )


def with_generators(annotation: Any) -> Any:
    """Return the annotation of a parameter with `Generator` for `Iterator`, since pydantic has no schema for that."""
    if annotation in (Iterator, typing.Iterator):
        return Generator[Any, None, None]
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Iterator:
        return Generator[args[0], None, None]
    if origin is Annotated:
        inner = with_generators(args[0])
        for extra in args[1:]:
            inner = Annotated[inner, extra]
        return inner
    if origin in (Union, types.UnionType):
        changed = tuple(with_generators(part) for part in args)
        return annotation if changed == args else Union[changed]  # noqa: UP007 - made at run time
    return annotation


def modern(annotation: Any) -> Any:
    """Return the annotation with `typing.TypedDict` replaced, as pydantic requires before Python 3.12."""
    if sys.version_info >= (3, 12):
        return annotation
    if typing.is_typeddict(annotation):
        hints = typing.get_type_hints(annotation, include_extras=True)
        hinted = {
            name: _key(modern(_unmarked(hint)), name in annotation.__required_keys__) for name, hint in hints.items()
        }
        modern_type = typing_extensions.TypedDict(annotation.__name__, hinted)  # pyright: ignore[reportArgumentType, reportGeneralTypeIssues] - made at run time
        modern_type.__doc__, modern_type.__module__ = annotation.__doc__, annotation.__module__
        return modern_type
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner = modern(args[0])
        for extra in args[1:]:
            inner = Annotated[inner, extra]
        return inner
    if origin in (list, dict, tuple, set, frozenset) and args:
        generic: Any = origin
        return generic[tuple(modern(part) for part in args)]
    if origin in (Union, types.UnionType):
        return Union[tuple(modern(part) for part in args)]  # noqa: UP007 - made at run time
    return annotation


def _unmarked(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) in (typing.Required, typing.NotRequired) else hint


def _key(hint: Any, is_required: bool) -> Any:
    return typing.Required[hint] if is_required else typing.NotRequired[hint]
