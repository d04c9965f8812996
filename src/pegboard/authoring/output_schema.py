"""Output schema: the schema of a return annotation, and the functions that write and read results by it."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

from pegboard.authoring.coercion import is_json, modern
from pegboard.authoring.plain_types import plain_schema
from pegboard.core.normalise import plain_form
from pegboard.core.sdk_blocks import is_block_class, is_result_class
from pegboard.lazy import LazyModule
from pegboard.model.error import CallError, DefinitionError, Problem
from pegboard.model.json_types import JSON
from pegboard.model.result import CONTENT_TYPES, ToolResult

if TYPE_CHECKING:
    import pydantic

    from pegboard.authoring import pydantic_schema
else:
    pydantic = LazyModule("pydantic")
    pydantic_schema = LazyModule("pegboard.authoring.pydantic_schema")

_NO_OUTPUT = (
    inspect.Signature.empty,
    None,
    type(None),
    str,
    bytes,
    bytearray,
    Any,
    object,
    ToolResult,
    typing.NoReturn,
    typing.Never,
    *CONTENT_TYPES,
)


_LISTS = (list, tuple, Sequence, Iterable, Collection)


def output_schema(annotation: Any, *, where: str) -> JSON | None:
    """Return the schema of a return annotation, a model or a JSON Schema; `None` without structured output.

    Raises:
        DefinitionError: the type has no JSON Schema.
    """
    if isinstance(annotation, dict):
        return annotation  # pyright: ignore[reportUnknownVariableType] - a JSON Schema
    inner = returned_type(annotation)
    if inner is None:
        return None
    if (plain := plain_schema(inner)) is not None:
        return plain
    try:
        return pydantic_schema.schema_of_result(modern(inner))
    except pydantic_schema.NoSchemaError as error:
        message = f"the annotation has no JSON Schema: {error}"
        raise DefinitionError(Problem(where=where, path="the result", message=message)) from error


def returned_type(annotation: Any) -> Any:
    """Return the type for describing and writing a result; `None` for text, media, results and no annotation."""
    origin = get_origin(annotation)
    if origin in (Awaitable, Coroutine):
        return returned_type(get_args(annotation)[-1])
    bare = get_args(annotation)[0] if origin is Annotated else annotation
    if _is_any_model(bare):
        return None
    if any(bare is plain for plain in _NO_OUTPUT) or (inspect.isclass(bare) and issubclass(bare, str | bytes)):
        # An Enum of strings is a text in Python, but a closed set for the model.
        return annotation if inspect.isclass(bare) and hasattr(bare, "__members__") else None
    return None if _mentions_content(bare) or _is_any_list(bare) else annotation


def _is_any_model(annotation: Any) -> bool:
    """Tell whether the annotation is the base class of models, which alone has no fields to write."""
    return getattr(annotation, "__module__", "") == "pydantic.main" and annotation is pydantic.BaseModel


def _is_any_list(annotation: Any) -> bool:
    """Tell whether the annotation is a list of anything, or a union with one: the list may hold content blocks."""
    origin, parts = get_origin(annotation) or annotation, get_args(annotation)
    if origin in (Union, types.UnionType):
        return any(map(_is_any_list, parts))
    return any(origin is kind for kind in _LISTS) and all(part in (Any, object, ...) for part in parts)


def _mentions_content(annotation: Any) -> bool:
    if annotation in (ToolResult, *CONTENT_TYPES) or is_block_class(annotation) or is_result_class(annotation):
        return True
    return any(_mentions_content(part) for part in get_args(annotation) if not isinstance(part, str | int | list))


def output_writer(annotation: Any) -> Callable[[Any], Any] | None:
    """Return a function that writes a result as JSON by its schema; `None` if the value is JSON already."""
    inner = None if isinstance(annotation, dict) else returned_type(annotation)
    if inner is None or is_json(inner, whole=True):
        return None
    dump = pydantic_schema.result_adapter(modern(inner)).dump_python

    def write(value: Any) -> Any:
        if isinstance(value, ToolResult):
            return value
        # A value of another type is written as it is; the output schema then judges it.
        try:
            return dump(value, mode="json", by_alias=True, warnings=False, fallback=plain_form)
        except (ValueError, TypeError) as error:
            message = f"The tool gave a {type(value).__name__}, which cannot be written as {annotation!r}."
            raise CallError("output_invalid", message, outcome_unknown=True) from error

    return write


def output_reader(annotation: Any) -> Callable[[object], object] | None:
    """Return a function that converts a result by its annotation and writes it; `None` without a schema.

    It is used only for results that miss the schema, so it is prepared on first use.
    """
    inner = None if isinstance(annotation, dict) else returned_type(annotation)
    if inner is None:
        return None

    def reread(value: object) -> object:
        if isinstance(value, ToolResult):
            raise TypeError("a result made by hand is what it is")
        adapter = pydantic_schema.result_adapter(modern(inner))
        read = adapter.validate_python(value)
        return adapter.dump_python(read, mode="json", by_alias=True, warnings=False, fallback=plain_form)

    return reread
