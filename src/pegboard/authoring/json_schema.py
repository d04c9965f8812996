"""JSON Schema of Python types: of parameters and of results. Imports pydantic where a type is not plain."""

from __future__ import annotations

import copy
import enum
import functools
import inspect
import numbers
import typing
import warnings
from collections import UserString
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Hashable,
    Mapping,
    Sequence,
    Set,
    Sized,
    ValuesView,
)
from dataclasses import field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from pegboard.authoring.coercion import (
    Coerce,
    UnfillableError,
    coercion,
    is_json,
    is_pydantic_field,
    modern,
    sparing_none,
    to_int,
)
from pegboard.authoring.field import MISSING, FieldSpec
from pegboard.authoring.plain_types import is_plain_default, plain_schema
from pegboard.core.normalise import has_fields, plain_form
from pegboard.frozen import frozen
from pegboard.lazy import LazyModule
from pegboard.model.error import CallError, DefinitionError, Problem
from pegboard.model.json_types import JSON
from pegboard.model.result import CONTENT_TYPES, ToolResult

if TYPE_CHECKING:
    import pydantic
    import pydantic.fields
    import pydantic.json_schema
    import pydantic.warnings
    import pydantic_core
else:
    pydantic = LazyModule("pydantic")
    pydantic_core = LazyModule("pydantic_core")


_OF_NAMES = (typing.Final, typing.ClassVar)
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


def _misplaced() -> type[Warning]:
    """Return what pydantic warns with of a `Field` that does nothing where it stands."""
    return pydantic.warnings.UnsupportedFieldAttributeWarning


def _pydantic_faults() -> tuple[type[Exception], ...]:
    """Return what pydantic raises for a type that it knows no schema for."""
    own = (pydantic.errors.PydanticUserError, pydantic.PydanticSchemaGenerationError, _misplaced())
    return (*own, pydantic_core.SchemaError, TypeError, NameError, AttributeError)


@frozen
class Parameter:
    """One parameter as the model sees it: annotation, what `Field` said, default (`MISSING` = required).

    `make_default` stands for a default that is made anew for each call. `python_name` is what the code calls it, where
    pydantic's `Field(alias=…)` publishes it under another name. `may_lack` says that the code does without it, and that
    nothing stands for it then: an optional key of a `TypedDict`.
    """

    name: str
    annotation: Any
    spec: FieldSpec = field(default_factory=FieldSpec)
    default: Any = MISSING
    make_default: Callable[[], Any] | None = None
    python_name: str = ""
    may_lack: bool = False

    @property
    def is_required(self) -> bool:
        return self.default is MISSING and self.make_default is None and not self.may_lack


@frozen
class ParameterSchema:
    """The object schema of parameters, coercions for types beyond JSON, and what `Field` said of each.

    `make_defaults` makes the defaults that cannot stand in a schema, being no JSON. `python_names` are what the code
    calls the properties that are published under an alias.
    """

    schema: JSON
    fields: Mapping[str, FieldSpec]
    coerce: Mapping[str, Coerce] = field(default_factory=dict[str, Coerce])
    make_defaults: Mapping[str, Callable[[], Any]] = field(default_factory=dict[str, Callable[[], Any]])
    python_names: Mapping[str, str] = field(default_factory=dict[str, str])

    def values(self, args: JSON) -> JSON:
        """Return validated arguments as the code wants them: coerced, and with the defaults that are no JSON.

        Raises:
            CallError: `invalid_arguments`, where a type asks more than its schema can say.
        """
        for name, coerce in self.coerce.items():
            value = args.get(name, MISSING)
            if value is not MISSING and not (type(value) is int and coerce is to_int):
                coerced = coerce(value)
                if coerced is not value:
                    args = {**args, name: coerced}
        if self.make_defaults:
            missing = {name: make() for name, make in self.make_defaults.items() if name not in args}
            args = {**args, **missing}
        if self.python_names:
            args = {self.python_names.get(name, name): value for name, value in args.items()}
        return args

    @property
    def is_plain(self) -> bool:
        """Whether `values` changes nothing."""
        return not self.coerce and not self.make_defaults and not self.python_names

    @property
    def coerces_integers_alone(self) -> bool:
        """Whether `values` changes nothing but a float that stands for an integer."""
        is_more = self.make_defaults or self.python_names
        return not is_more and all(coerce is to_int for coerce in self.coerce.values())


def parameter(name: str, annotation: Any, *, default: Any = MISSING, description: str = "") -> Parameter:
    """Return a parameter; reads our `Field`, pydantic's, and plain text in `Annotated[…]` or as the default.

    `description` is what the docstring says, for want of anything nearer.
    """
    annotation, alias = _without_alias(annotation)
    annotation, spec, stated = _take_fields(annotation)
    if isinstance(default, FieldSpec):
        spec, default = default, default.default
    elif default is MISSING:
        default = spec.default
    make_default = None
    if is_pydantic_field(default):
        default, alias = _bare_field(default, alias)
        annotation = Annotated[annotation, default]
        stated = default.description or stated
        make_default = default.default_factory
        default = MISSING if default.is_required() or make_default is not None else default.default
    words = spec.keywords.get("description") or stated or description
    spec = replace(spec, keywords={**spec.keywords, **({"description": words} if words else {})})
    return Parameter(
        name=alias or name,
        annotation=annotation,
        spec=spec,
        default=default,
        make_default=make_default,  # pyright: ignore[reportArgumentType] - pydantic's own factories take nothing
        python_name=name if alias else "",
    )


def _without_alias(annotation: Any) -> tuple[Any, str]:
    """Return the annotation without pydantic's aliases of the parameter itself, and the last of them."""
    if get_origin(annotation) is not Annotated:
        return annotation, ""
    inner, *extras = get_args(annotation)
    alias = ""
    for extra in extras:
        bare = extra
        if is_pydantic_field(extra):
            bare, alias = _bare_field(extra, alias)
        inner = Annotated[inner, bare]
    return inner, alias


def _bare_field(info: pydantic.fields.FieldInfo, alias: str) -> tuple[pydantic.fields.FieldInfo, str]:
    """Return pydantic's `Field` without its alias, and that alias, or the one so far."""
    said = info.validation_alias or info.alias
    if said is None:
        return info, alias
    if not isinstance(said, str):
        message = f"Field(validation_alias={said!r}): a parameter has one name; give it as text."
        raise DefinitionError(f"{message} Further names go in pegboard.Field(aliases=[…]).")
    bare = copy.copy(info)
    bare.alias = bare.validation_alias = bare.serialization_alias = bare.alias_priority = None
    # Else pydantic warns that the alias of a type by itself does nothing; here it does.
    told: dict[str, Any] = bare._attributes_set  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType] - pydantic has no other way
    aliases = ("alias", "validation_alias", "serialization_alias", "alias_priority")
    kept = {key: value for key, value in told.items() if key not in aliases}
    bare._attributes_set = kept  # pyright: ignore[reportPrivateUsage] - as above
    return bare, said


def _take_fields(annotation: Any) -> tuple[Any, FieldSpec, str]:
    """Take our `Field` and plain words out of `Annotated[…]`; what else stands there is pydantic's."""
    if get_origin(annotation) is not Annotated:
        return annotation, FieldSpec(), ""
    inner, *extras = get_args(annotation)
    spec = next((extra for extra in extras if isinstance(extra, FieldSpec)), FieldSpec())
    words = next((extra for extra in extras if isinstance(extra, str)), "")
    words = next(
        (extra.description for extra in extras if is_pydantic_field(extra) and extra.description),
        words,
    )
    constraints = [extra for extra in extras if not isinstance(extra, FieldSpec | str)]
    for extra in constraints:
        inner = Annotated[inner, extra]
    return inner, spec, words


# ---------------------------------------------------------------- arguments


def parameter_schema(parameters: list[Parameter], *, where: str) -> ParameterSchema:
    """Return the object schema of the parameters and what turns arguments into what the code wants.

    Raises:
        DefinitionError: an annotation that has no JSON Schema, a default that does not fit its type.
    """
    _refuse_twins(parameters, where)
    for item in parameters:
        if item.annotation in _OF_NAMES or get_origin(item.annotation) in _OF_NAMES:
            message = f"{item.annotation!r} is for names of a class or module; write the type alone."
            raise DefinitionError(Problem(where=where, path=f"parameter {item.name!r}", message=message))
        if _mentions(item.annotation, typing.Self):
            message = "Self is the class around a method, and a function has none; name the class."
            raise DefinitionError(Problem(where=where, path=f"parameter {item.name!r}", message=message))
    annotations = {item.name: modern(item.annotation) for item in parameters}
    object_schema = _object_schema(parameters, annotations, where)
    properties: JSON = object_schema.get("properties", {})
    schema: JSON = {"type": "object", "properties": {}}
    for item in parameters:
        schema["properties"][item.name] = _ordered({**properties[item.name], **item.spec.keywords})
    required = [item.name for item in parameters if item.is_required]
    if required:
        schema["required"] = required
    if "$defs" in object_schema:
        schema["$defs"] = object_schema["$defs"]
    make_defaults: dict[str, Callable[[], Any]] = {}
    coerce: dict[str, Coerce] = {}
    for item in parameters:
        try:
            conversion = coercion(item.name, annotations[item.name])
        except UnfillableError as error:
            raise DefinitionError(Problem(where=where, path=f"parameter {item.name!r}", message=str(error))) from None
        if conversion is not None:
            coerce[item.name] = sparing_none(conversion) if item.default is None else conversion
        has_default = not item.is_required and (item.default is not MISSING or item.make_default is not None)
        if has_default and "default" not in properties[item.name]:
            make_defaults[item.name] = item.make_default or (lambda default=item.default: default)
        elif has_default and _misfits(schema["properties"][item.name], properties[item.name]["default"]):
            kind = schema["properties"][item.name].get("type") or "its type"
            message = f"the default {item.default!r} does not fit {kind}; mend the type or the default."
            raise DefinitionError(Problem(where=where, path=f"parameter {item.name!r}", message=message))
        elif has_default and item.name in coerce:
            _check_default(item, coerce[item.name], properties[item.name]["default"], where)
    fields = {item.name: item.spec for item in parameters}
    return ParameterSchema(
        schema=schema,
        fields=fields,
        coerce=coerce,
        make_defaults=make_defaults,
        python_names={item.name: item.python_name for item in parameters if item.python_name},
    )


def _mentions(annotation: Any, what: Any) -> bool:
    return annotation is what or any(_mentions(part, what) for part in get_args(annotation))


def _refuse_twins(parameters: list[Parameter], where: str) -> None:
    seen: set[str] = set()
    for item in parameters:
        if item.name in seen:
            message = "is the name of two parameters; give one of them another alias."
            raise DefinitionError(Problem(where=where, path=f"parameter {item.name!r}", message=message))
        seen.add(item.name)


def _object_schema(parameters: list[Parameter], annotations: Mapping[str, Any], where: str) -> JSON:
    if (plain := _plain_properties(parameters, annotations)) is not None:
        return {"properties": plain}
    fields: dict[str, Any] = {}
    for index, item in enumerate(parameters):
        # A neutral name inside the model: a parameter may be called `schema` or `copy`, which pydantic keeps.
        if item.make_default is not None:
            field_info = pydantic.Field(default_factory=item.make_default, alias=item.name)
        else:
            field_info = pydantic.Field(... if item.default is MISSING else item.default, alias=item.name)
        fields[f"p{index}"] = (annotations[item.name], field_info)
    try:
        return _schema_of(lambda: pydantic.create_model("Arguments", **fields))
    except _pydantic_faults() as error:
        problems = [problem for item in parameters for problem in _fault(item.name, annotations[item.name], where)]
        raise DefinitionError(problems or _no_schema(where, "", error)) from error


def _plain_properties(parameters: list[Parameter], annotations: Mapping[str, Any]) -> JSON | None:
    """Return the schemas of parameters that are plain, all of them, defaults included."""
    properties: JSON = {}
    for item in parameters:
        schema = plain_schema(annotations[item.name])
        if schema is None or item.make_default is not None:
            return None
        if item.default is not MISSING:
            if not is_plain_default(item.default):
                return None
            schema = {"default": item.default, **schema}
        properties[item.name] = schema
    return properties


def _fault(name: str, annotation: Any, where: str) -> list[Problem]:
    try:
        _schema_of(lambda: pydantic.TypeAdapter(annotation))
    except _pydantic_faults() as error:
        return [_no_schema(where, f"parameter {name!r}", error)]
    return []


def _no_schema(where: str, what: str, error: Exception) -> Problem:
    if isinstance(error, pydantic_core.SchemaError):
        error = TypeError("nothing can be told to be an instance of it, as of a Protocol.")
    fault = (str(error).splitlines() or [type(error).__name__])[0].partition(" Set `arbitrary_types_allowed")[0]
    advice = " Use a dataclass, a TypedDict or a pydantic model." if "generate pydantic-core schema" in fault else ""
    return Problem(where=where, path=what, message=f"the annotation has no JSON Schema: {fault}{advice}")


_JSON_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "boolean": bool,
    "integer": (int, float),
    "number": (int, float),
    "array": (list, tuple),
    "object": dict,
    "null": type(None),
}


def _misfits(schema: JSON, default: Any) -> bool:
    """Tell whether a default is of another type than its schema says, or none of those that it lists.

    `None` fits everything: it is the common way to say that nothing was given.
    """
    if default is None:
        return False
    if "anyOf" in schema:
        return all(_misfits(each, default) for each in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return default not in schema.get("enum", [schema.get("const")])
    said: str | list[str] = schema.get("type", [])
    types = [said] if isinstance(said, str) else said
    return bool(types) and not any(_is_of(default, each) for each in types)


def _is_of(default: Any, kind: str) -> bool:
    is_flag_for_number = isinstance(default, bool) and kind in ("integer", "number")
    return isinstance(default, _JSON_TYPES.get(kind, object)) and not is_flag_for_number


def _check_default(item: Parameter, coerce: Coerce, default: Any, where: str) -> None:
    try:
        coerce(default)
    except CallError as error:
        message = f"the default {item.default!r} does not fit: {error}"
        raise DefinitionError(Problem(where=where, path=f"parameter {item.name!r}", message=message)) from None


def _ordered(schema: JSON) -> JSON:
    """Return a property as people write it: type and description first, default last."""
    first = {key: schema[key] for key in ("type", "description") if key in schema}
    last = {"default": schema["default"]} if "default" in schema else {}
    return {**first, **{key: value for key, value in schema.items() if key != "default"}, **last}


# ---------------------------------------------------------------- results


def output_schema(annotation: Any, *, where: str) -> JSON | None:
    """Return the schema of a return annotation, a model or a JSON Schema; `None` where no structure is promised.

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
        return _schema_of(lambda: _result_adapter(modern(inner)), mode="serialization")
    except _pydantic_faults() as error:
        raise DefinitionError(_no_schema(where, "the result", error)) from error


def returned_type(annotation: Any) -> Any:
    """Return the type that a result is described and written by; `None` for text, media, results and no annotation."""
    origin = get_origin(annotation)
    if origin in (Awaitable, Coroutine):
        return returned_type(get_args(annotation)[-1])
    bare = get_args(annotation)[0] if origin is Annotated else annotation
    if _is_any_model(bare):
        return None
    if any(bare is plain for plain in _NO_OUTPUT) or (inspect.isclass(bare) and issubclass(bare, str | bytes)):
        # An Enum of strings is text to Python, and yet a closed set to the model.
        return annotation if inspect.isclass(bare) and hasattr(bare, "__members__") else None
    return None if _mentions_content(bare) else annotation


def _is_any_model(annotation: Any) -> bool:
    """Tell whether a model of any kind is promised: written by this alone it would have no fields."""
    return getattr(annotation, "__module__", "") == "pydantic.main" and annotation is pydantic.BaseModel


def _mentions_content(annotation: Any) -> bool:
    if annotation in (ToolResult, *CONTENT_TYPES):
        return True
    return any(_mentions_content(part) for part in get_args(annotation) if not isinstance(part, str | int | list))


def output_writer(annotation: Any) -> Callable[[Any], Any] | None:
    """Return what writes a result as JSON the way its schema says; `None` where the value is JSON already."""
    inner = None if isinstance(annotation, dict) else returned_type(annotation)
    if inner is None or is_json(inner, whole=True):
        return None
    dump = _result_adapter(modern(inner)).dump_python

    def write(value: Any) -> Any:
        if isinstance(value, ToolResult):
            return value
        # A value of another type than promised is written as it is; the output schema judges it.
        try:
            return dump(value, mode="json", by_alias=True, warnings=False, fallback=plain_form)
        except (ValueError, TypeError) as error:
            message = f"The tool gave a {type(value).__name__}, which cannot be written as {annotation!r}."
            raise CallError("output_invalid", message, outcome_unknown=True) from error

    return write


def output_reader(annotation: Any) -> Callable[[object], object] | None:
    """Return what reads a result as its annotation means it, and writes it so; `None` where nothing is promised.

    It is asked where the result misses its promise, so what it needs is made then.
    """
    inner = None if isinstance(annotation, dict) else returned_type(annotation)
    if inner is None:
        return None

    def reread(value: object) -> object:
        if isinstance(value, ToolResult):
            raise TypeError("a result made by hand is what it is")
        adapter = _result_adapter(modern(inner))
        read = adapter.validate_python(value)
        return adapter.dump_python(read, mode="json", by_alias=True, warnings=False, fallback=plain_form)

    return reread


def _result_adapter(annotation: Any) -> pydantic.TypeAdapter[Any]:
    """Return what describes and writes a result: also one of a plain class, by its fields."""
    try:
        return pydantic.TypeAdapter(annotation, config={"arbitrary_types_allowed": True})
    except pydantic.errors.PydanticUserError as error:
        if error.code != "type-adapter-config-unused":
            raise
        return pydantic.TypeAdapter(annotation)


# ---------------------------------------------------------------- schemas


def _schema_of(make: Callable[[], Any], *, mode: Literal["validation", "serialization"] = "validation") -> JSON:
    with warnings.catch_warnings():
        # A default that is no JSON simply does not stand in the schema; it is filled in before the call.
        warnings.simplefilter("ignore", pydantic.json_schema.PydanticJsonSchemaWarning)
        # An alias within a list or a union does nothing: better no tool than one that means less than it says.
        warnings.filterwarnings("error", "The '(validation_)?alias' attribute", _misplaced())
        model, writer = make(), _schema_writer()
        write: Callable[..., JSON] = getattr(model, "model_json_schema", None) or model.json_schema
        schema = write(mode=mode, schema_generator=writer)
    return _untitled(schema)


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


@functools.cache
def _schema_writer() -> type[pydantic.json_schema.GenerateJsonSchema]:
    class SchemaWriter(pydantic.json_schema.GenerateJsonSchema):
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

    return SchemaWriter


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
