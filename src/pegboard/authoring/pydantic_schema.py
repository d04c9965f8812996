"""Pydantic schema: pydantic's JSON Schema of a type, with corrections where it is inaccurate.

Imported only for types that are not plain: a program of plain tools does not import pydantic.
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

# pydantic's errors for types without a schema, and its warning about a `Field` without effect.
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
        NoSchemaError: a field has no schema.
    """
    return _schema_of(lambda: pydantic.create_model("Arguments", **fields), mode="validation")


def schema_of_argument(annotation: Any) -> JSON:
    """Return the schema of one argument.

    Raises:
        NoSchemaError: it has no schema.
    """
    return _schema_of(lambda: pydantic.TypeAdapter(annotation), mode="validation")


def schema_of_result(annotation: Any) -> JSON:
    """Return the schema of a result as `result_adapter` writes it.

    Raises:
        NoSchemaError: it has no schema.
    """
    return _schema_of(lambda: result_adapter(annotation), mode="serialization")


def result_adapter(annotation: Any) -> pydantic.TypeAdapter[Any]:
    """Return the adapter that describes and writes a result, including instances of plain classes by their fields."""
    try:
        return pydantic.TypeAdapter(annotation, config={"arbitrary_types_allowed": True})
    except pydantic.errors.PydanticUserError as error:
        if error.code != "type-adapter-config-unused":
            raise
        return pydantic.TypeAdapter(annotation)


def _schema_of(make: Callable[[], Any], *, mode: Literal["validation", "serialization"]) -> JSON:
    with warnings.catch_warnings():
        # A default that is not JSON is left out of the schema and filled in before the call.
        warnings.simplefilter("ignore", PydanticJsonSchemaWarning)
        # An alias inside a list or a union has no effect; refuse the tool instead of ignoring the alias.
        warnings.filterwarnings("error", "The '(validation_)?alias' attribute", UnsupportedFieldAttributeWarning)
        try:
            model = make()
            write: Callable[..., JSON] = getattr(model, "model_json_schema", None) or model.json_schema
            return _untitled(write(mode=mode, schema_generator=_SchemaWriter))
        except _FAULTS as error:
            raise NoSchemaError(_words_of(error)) from error


def _words_of(error: Exception) -> str:
    if isinstance(error, pydantic_core.SchemaError):
        return "there is no way to check whether a value is an instance of it, as for a Protocol."
    fault = (str(error).splitlines() or [type(error).__name__])[0].partition(" Set `arbitrary_types_allowed")[0]
    advice = " Use a dataclass, a TypedDict or a pydantic model." if "generate pydantic-core schema" in fault else ""
    return f"{fault}{advice}"


# The formats that Python parses: ISO 8601 dates and times, with or without an offset.
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


# Protocols that strings, mappings or fraction texts satisfy as well.
_OF_ANY_SHAPE = (Collection, Hashable, Sized, numbers.Number, numbers.Real, numbers.Rational, numbers.Integral)


class _SchemaWriter(GenerateJsonSchema):
    """Corrects the schemas of times: JSON Schema's `date-time` and `time` require an offset, Python does not.

    Only types that require an offset get the format. JSON Schema's `duration` has neither fractions nor a sign.
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
        # A list with duplicates still means a set; a result has no duplicates.
        unique = self.mode == "serialization"
        return shown if unique else {key: value for key, value in shown.items() if key != "uniqueItems"}

    def dict_schema(self, schema: Any) -> Any:
        # JSON keys are strings, so pydantic's key schema describes the values that these strings encode.
        shown, keys = super().dict_schema(schema), schema.get("keys_schema", {})
        if keys.get("type") == "enum":
            return {**shown, "propertyNames": {"enum": [str(member.value) for member in keys["members"]]}}
        is_text = keys.get("type") == "str"
        return {key: value for key, value in shown.items() if is_text or key != "propertyNames"}

    def str_schema(self, schema: Any) -> Any:
        # A pattern applies to the input; the case is changed after it.
        shown, changes = super().str_schema(schema), schema.get("to_upper") or schema.get("to_lower")
        is_open = self.mode == "serialization" and changes
        return {key: value for key, value in shown.items() if key != "pattern"} if is_open else shown

    def ser_schema(self, schema: Any) -> Any:
        """Leave the schema open if a serialiser has no return type: pydantic assumes the value's own type."""
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
        # For arguments the text is that of `UnfillableError`.
        if self.mode == "validation":
            return super().is_subclass_schema(schema)
        return self.handle_invalid_for_json_schema(schema, f"a class ({schema['cls']!r}), which is not JSON")

    def is_instance_schema(self, schema: Any) -> Any:
        # Only results may have classes that pydantic does not know.
        shown = _shape_of(schema["cls"]) if self.mode == "serialization" else None
        return super().is_instance_schema(schema) if shown is None else shown

    def _text(self, kind: str) -> Any:
        # pydantic writes results, and its output is never checked against a pattern.
        return {"type": "string", **({"pattern": _PATTERNS[kind]} if self.mode == "validation" else {})}


def _untitled(schema: Any, *, names: bool = False) -> Any:
    """Return the schema without pydantic's generated titles; inside `properties` a key called title is a name."""
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
