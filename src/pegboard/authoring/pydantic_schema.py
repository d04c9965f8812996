"""Pydantic schema: the JSON Schema that pydantic draws of a type, corrected where it says what is not so.

Loaded where a type is not plain: a program of plain tools does not import pydantic.
"""

from __future__ import annotations

import enum
import functools
import numbers
import typing
import warnings
from collections import UserString
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence, Set, Sized, ValuesView
from typing import Any, Literal

import pydantic
import pydantic_core
from pydantic.json_schema import GenerateJsonSchema, PydanticJsonSchemaWarning
from pydantic.warnings import UnsupportedFieldAttributeWarning

from pegboard.core.normalise import has_fields
from pegboard.model.json_types import JSON

# What pydantic raises for a type that it knows no schema for. The warning is one of a `Field` that does nothing there.
_FAULTS = (
    pydantic.errors.PydanticUserError,
    pydantic.PydanticSchemaGenerationError,
    UnsupportedFieldAttributeWarning,
    pydantic_core.SchemaError,
    TypeError,
    NameError,
    AttributeError,
)


class NoSchemaError(Exception):
    """A type has no JSON Schema; the text says why."""


def schema_of_arguments(fields: Mapping[str, Any]) -> JSON:
    """Return the schema of an object with the fields of a pydantic model, each an annotation and a `Field`.

    Raises:
        NoSchemaError: one of them has none.
    """
    return _schema_of(lambda: pydantic.create_model("Arguments", **fields), mode="validation")


def schema_of_argument(annotation: Any) -> JSON:
    """Return the schema of one argument.

    Raises:
        NoSchemaError: there is none.
    """
    return _schema_of(lambda: pydantic.TypeAdapter(annotation), mode="validation")


def schema_of_result(annotation: Any) -> JSON:
    """Return the schema of a result as `result_adapter` writes it.

    Raises:
        NoSchemaError: there is none.
    """
    return _schema_of(lambda: result_adapter(annotation), mode="serialization")


def result_adapter(annotation: Any) -> pydantic.TypeAdapter[Any]:
    """Return what describes and writes a result: also one of a plain class, by its fields."""
    try:
        return pydantic.TypeAdapter(annotation, config={"arbitrary_types_allowed": True})
    except pydantic.errors.PydanticUserError as error:
        if error.code != "type-adapter-config-unused":
            raise
        return pydantic.TypeAdapter(annotation)


def _schema_of(make: Callable[[], Any], *, mode: Literal["validation", "serialization"]) -> JSON:
    with warnings.catch_warnings():
        # A default that is not JSON simply does not stand in the schema; it is filled in before the call.
        warnings.simplefilter("ignore", PydanticJsonSchemaWarning)
        # An alias within a list or a union does nothing: better no tool than one that means less than it says.
        warnings.filterwarnings("error", "The '(validation_)?alias' attribute", UnsupportedFieldAttributeWarning)
        try:
            model = make()
            write: Callable[..., JSON] = getattr(model, "model_json_schema", None) or model.json_schema
            return _untitled(write(mode=mode, schema_generator=_SchemaWriter))
        except _FAULTS as error:
            raise NoSchemaError(_words_of(error)) from error


def _words_of(error: Exception) -> str:
    if isinstance(error, pydantic_core.SchemaError):
        return "nothing can be told to be an instance of it, as of a Protocol."
    fault = (str(error).splitlines() or [type(error).__name__])[0].partition(" Set `arbitrary_types_allowed")[0]
    advice = " Use a dataclass, a TypedDict or a pydantic model." if "generate pydantic-core schema" in fault else ""
    return f"{fault}{advice}"


# What Python reads: a day, and a time of it with or without an offset, as ISO 8601 has them.
_TIME = r"\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?"
_PATTERNS = {"datetime": rf"^\d{{4}}-\d{{2}}-\d{{2}}([T ]{_TIME})?$", "time": rf"^{_TIME}$"}


def _mask(kind: type[enum.Flag]) -> int:
    return functools.reduce(lambda so_far, member: so_far | member.value, kind, 0)


def _shape_of(kind: type) -> JSON | None:
    """Return the schema of a result whose class pydantic does not know, as `plain_form` writes it."""
    if kind in _OF_ANY_SHAPE:
        return {}
    if has_fields(kind) or issubclass(kind, Mapping):
        return {"type": "object"}
    is_text = issubclass(bytes, kind) or issubclass(kind, UserString | bytearray | memoryview)
    return {"type": "array"} if issubclass(kind, Set | Sequence | ValuesView) and not is_text else None


# A text or mapping is a collection too, and the exact text of a fraction a number.
_OF_ANY_SHAPE = (Collection, Hashable, Sized, numbers.Number, numbers.Real, numbers.Rational, numbers.Integral)


class _SchemaWriter(GenerateJsonSchema):
    """Says of times what Python means by them: `date-time` and `time` of JSON Schema demand an offset.

    Only a type that demands one has the format; and a `duration` has neither fractions nor a sign there.
    """

    def datetime_schema(self, schema: Any) -> Any:
        return super().datetime_schema(schema) if schema.get("tz_constraint") == "aware" else self._text("datetime")

    def time_schema(self, schema: Any) -> Any:
        return super().time_schema(schema) if schema.get("tz_constraint") == "aware" else self._text("time")

    def timedelta_schema(self, schema: Any) -> Any:
        shown = super().timedelta_schema(schema)
        return {"type": "string"} if shown.get("format") == "duration" else shown

    def set_schema(self, schema: Any) -> Any:
        return self._set(super().set_schema(schema))

    def frozenset_schema(self, schema: Any) -> Any:
        return self._set(super().frozenset_schema(schema))

    def _set(self, shown: Any) -> Any:
        # A list that says a thing twice means the same set; what is given holds each thing once.
        unique = self.mode == "serialization"
        return shown if unique else {key: value for key, value in shown.items() if key != "uniqueItems"}

    def dict_schema(self, schema: Any) -> Any:
        # Names in JSON are texts: what pydantic says of keys is said of the values that these texts mean.
        shown, keys = super().dict_schema(schema), schema.get("keys_schema", {})
        if keys.get("type") == "enum":
            return {**shown, "propertyNames": {"enum": [str(member.value) for member in keys["members"]]}}
        is_text = keys.get("type") == "str"
        return {key: value for key, value in shown.items() if is_text or key != "propertyNames"}

    def str_schema(self, schema: Any) -> Any:
        # A pattern is for what comes in; the case is changed after it.
        shown, changes = super().str_schema(schema), schema.get("to_upper") or schema.get("to_lower")
        is_open = self.mode == "serialization" and changes
        return {key: value for key, value in shown.items() if key != "pattern"} if is_open else shown

    def ser_schema(self, schema: Any) -> Any:
        """Leave open what a function writes that does not say what: pydantic takes it for the value's own type."""
        if schema.get("type") not in ("function-plain", "function-wrap") or "return_schema" in schema:
            return super().ser_schema(schema)
        function = schema["function"]
        if not getattr(function, "__module__", "").startswith("pydantic."):
            return {}
        return {"type": "string"} if "secret" in function.__name__ else super().ser_schema(schema)

    def enum_schema(self, schema: Any) -> Any:
        shown, kind = super().enum_schema(schema), schema["cls"]
        if not issubclass(kind, enum.Flag):
            return shown
        members = ", ".join(f"{member.value} {member.name}" for member in kind)
        words = shown.get("description") or f"The sum of any of: {members}"
        bounds = {"minimum": 0, "maximum": _mask(kind)} if self.mode == "validation" else {}
        return {"type": "integer", "description": words, **bounds}

    def is_subclass_schema(self, schema: Any) -> Any:
        # Where an argument would be one, the words are those of `UnfillableError`.
        if self.mode == "validation":
            return super().is_subclass_schema(schema)
        return self.handle_invalid_for_json_schema(schema, f"a class ({schema['cls']!r}), which is no JSON")

    def is_instance_schema(self, schema: Any) -> Any:
        # Only results come with classes that pydantic does not know.
        shown = _shape_of(schema["cls"]) if self.mode == "serialization" else None
        return super().is_instance_schema(schema) if shown is None else shown

    def _text(self, kind: str) -> Any:
        # A result is written by pydantic, and what it writes is never held against a pattern.
        return {"type": "string", **({"pattern": _PATTERNS[kind]} if self.mode == "validation" else {})}


def _untitled(schema: Any, *, names: bool = False) -> Any:
    """Return the schema without pydantic's made-up titles; inside `properties` a key called title is a name."""
    if isinstance(schema, list):
        return [_untitled(item) for item in typing.cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    untitled: JSON = {}
    for key, value in typing.cast("JSON", schema).items():
        if not names and key == "title" and isinstance(value, str):
            continue
        is_value = key in ("default", "const", "enum", "examples") and not names
        holds_names = key in ("properties", "$defs", "patternProperties") and not names
        untitled[key] = value if is_value else _untitled(value, names=holds_names)
    return untitled
