"""Coercion: turn validated JSON into the Python types that annotations mean. Imports pydantic; loaded when used."""

from __future__ import annotations

import functools
import sys
import types
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import typing_extensions

from pegboard.core.schema import ArgumentProblem, json_path, shown
from pegboard.lazy import LazyModule
from pegboard.model.error import CallError

if TYPE_CHECKING:
    import pydantic
    import pydantic.fields
else:
    pydantic = LazyModule("pydantic")


Coerce = Callable[[Any], Any]
_JSON_TYPES = (str, bool, type(None), object, Any, list, dict)


def is_json(annotation: Any, *, whole: bool = False) -> bool:
    """Tell whether a JSON value already is what the annotation means.

    As an argument a number is not, since JSON Schema takes 3.0 for an integer, and 3 for what the code wants as a
    `float`; `whole` says that numbers are as they are.
    """
    origin = get_origin(annotation)
    if origin is Annotated:
        # Constraints stand in the schema; anything else there may change the value.
        inner, *extras = get_args(annotation)
        return all(isinstance(extra, pydantic.fields.FieldInfo) for extra in extras) and is_json(inner, whole=whole)
    if origin in (Union, types.UnionType, list, dict):
        return all(is_json(part, whole=whole) for part in get_args(annotation))
    if origin is Literal:
        return all(type(part) in (str, bool, type(None)) for part in get_args(annotation))
    return (whole and annotation in (int, float)) or any(annotation is plain for plain in _JSON_TYPES)


def coercion(name: str, annotation: Any) -> Coerce | None:
    """Return what turns a validated argument into its Python type; `None` where it is that already."""
    if annotation is int:
        return to_int
    if annotation is float:
        return functools.partial(_to_float, name)
    if is_json(annotation):
        return None
    validate = pydantic.TypeAdapter(annotation).validate_python

    def coerce(value: Any) -> Any:
        try:
            return validate(value)
        except pydantic.ValidationError as error:
            raise _invalid(name, error) from None

    return coerce


def to_int(value: Any) -> Any:
    """JSON Schema takes 3.0 for an integer; the code asked for an int."""
    return int(value) if type(value) is float else value


def _to_float(name: str, value: Any) -> Any:
    """JSON has one kind of number; the code asked for a float."""
    if type(value) is not int:
        return value
    try:
        return float(value)
    except OverflowError:
        problem = ArgumentProblem(json_path([name]), "type", "the number is too large for a float", shown(value))
        raise _refused([problem]) from None


def sparing_none(coerce: Coerce) -> Coerce:
    """A default of `None` means "not given", whatever the type says."""
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


def modern(annotation: Any) -> Any:
    """Return the annotation with `typing.TypedDict`s as pydantic wants them before Python 3.12."""
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
