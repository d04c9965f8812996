"""Parameter schema: the object schema of Python parameters, and the conversion of arguments to Python values."""

from __future__ import annotations

import copy
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

from msgspec import Struct, field

from pegboard.authoring.coercion import (
    Coerce,
    UnfillableError,
    coercion,
    is_pydantic_field,
    modern,
    sparing_none,
    to_int,
    with_generators,
)
from pegboard.authoring.field import MISSING, FieldSpec
from pegboard.authoring.foreign_injection import injected_elsewhere
from pegboard.authoring.plain_types import is_plain_default, plain_schema
from pegboard.lazy import LazyModule
from pegboard.model.error import CallError, DefinitionError, Problem
from pegboard.model.json_types import JSON
from pegboard.model.record import replace

if TYPE_CHECKING:
    import pydantic
    import pydantic.fields

    from pegboard.authoring import pydantic_schema
else:
    pydantic = LazyModule("pydantic")
    pydantic_schema = LazyModule("pegboard.authoring.pydantic_schema")

_OF_NAMES = (typing.Final, typing.ClassVar)


class Parameter(Struct, frozen=True, kw_only=True):
    """One parameter as the model sees it: annotation, `Field` settings, default (`MISSING` = required).

    `make_default` makes a new default for each call. `python_name` is the name in the code if pydantic's
    `Field(alias=…)` publishes another one. `may_lack` marks an optional key of a `TypedDict`: it may be missing,
    without a default.
    """

    name: str
    annotation: Any
    spec: FieldSpec = field(default_factory=FieldSpec)
    default: Any = MISSING
    make_default: Callable[[], Any] | None = None
    python_name: str = ""
    may_lack: bool = False

    @property
    def has_default(self) -> bool:
        return self.default is not MISSING or self.make_default is not None

    @property
    def is_required(self) -> bool:
        return not self.has_default and not self.may_lack


class ParameterSchema(Struct, frozen=True, kw_only=True):
    """The object schema of parameters, conversions for types beyond JSON, and the `Field` of each.

    `make_defaults` makes the defaults that are not JSON and so cannot be in a schema. `python_names` are the names in
    the code of properties that are published under an alias.
    """

    schema: JSON
    fields: Mapping[str, FieldSpec]
    coerce: Mapping[str, Coerce] = field(default_factory=dict[str, Coerce])
    make_defaults: Mapping[str, Callable[[], Any]] = field(default_factory=dict[str, Callable[[], Any]])
    python_names: Mapping[str, str] = field(default_factory=dict[str, str])

    def values(self, args: JSON) -> JSON:
        """Return validated arguments as Python values, with the defaults that are not JSON.

        Raises:
            CallError: `invalid_arguments`, if a type is stricter than its schema.
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
        """Whether `values` only converts floats to integers."""
        is_more = self.make_defaults or self.python_names
        return not is_more and all(coerce is to_int for coerce in self.coerce.values())


def parameter(name: str, annotation: Any, *, default: Any = MISSING, description: str = "") -> Parameter:
    """Return a parameter; reads our `Field`, pydantic's, and plain text in `Annotated[…]` or as the default.

    `description` comes from the docstring; any other description takes precedence.
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
    """Return the annotation without pydantic's aliases for the parameter, and the last of them."""
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
    """Return pydantic's `Field` without its alias, and that alias, or else the one passed in."""
    own = info.validation_alias or info.alias
    if own is None:
        return info, alias
    if not isinstance(own, str):
        message = f"Field(validation_alias={own!r}): a parameter has one name; give it as text."
        raise DefinitionError(f"{message} Further names go in pegboard.Field(aliases=[…]).")
    bare = copy.copy(info)
    bare.alias = bare.validation_alias = bare.serialization_alias = bare.alias_priority = None
    # Otherwise pydantic warns that an alias on a bare type has no effect; here it has one.
    stated: dict[str, Any] = bare._attributes_set  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType] - pydantic has no other way
    aliases = ("alias", "validation_alias", "serialization_alias", "alias_priority")
    bare._attributes_set = {key: value for key, value in stated.items() if key not in aliases}  # pyright: ignore[reportPrivateUsage] - as above
    return bare, own


def _take_fields(annotation: Any) -> tuple[Any, FieldSpec, str]:
    """Take our `Field` and plain strings out of `Annotated[…]`; the rest is for pydantic."""
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
    """Return the object schema of the parameters and the conversion of arguments.

    Raises:
        DefinitionError: an annotation without a JSON Schema, or a default that does not fit its type.
    """
    seen: set[str] = set()
    for item in parameters:
        if item.name in seen:
            raise _refused(item, where, "is the name of two parameters; give one of them another alias.")
        seen.add(item.name)
        _check_annotation(item, where)
    annotations = {item.name: modern(with_generators(item.annotation)) for item in parameters}
    plain = _plain_properties(parameters, annotations)
    drawn = _drawn_by_pydantic(parameters, annotations, where) if plain is None else {"properties": plain}
    properties: JSON = drawn.get("properties", {})
    published = {item.name: _ordered({**properties[item.name], **item.spec.keywords}) for item in parameters}
    schema: JSON = {"type": "object", "properties": published}
    required = [item.name for item in parameters if item.is_required]
    if required:
        schema["required"] = required
    if "$defs" in drawn:
        schema["$defs"] = drawn["$defs"]
    make_defaults: dict[str, Callable[[], Any]] = {}
    coerce: dict[str, Coerce] = {}
    for item in parameters:
        conversion = _coercion(item, annotations[item.name], where)
        if conversion is not None:
            coerce[item.name] = conversion
        if not item.has_default:
            continue
        if "default" in properties[item.name]:
            _check_default(item, properties[item.name]["default"], published[item.name], conversion, where)
        else:
            # A default that is not JSON cannot be in the schema.
            make_defaults[item.name] = item.make_default or (lambda default=item.default: default)
    return ParameterSchema(
        schema=schema,
        fields={item.name: item.spec for item in parameters},
        coerce=coerce,
        make_defaults=make_defaults,
        python_names={item.name: item.python_name for item in parameters if item.python_name},
    )


def _refused(item: Parameter, where: str, message: str) -> DefinitionError:
    return DefinitionError(Problem(where=where, path=f"parameter {item.name!r}", message=message))


def _check_annotation(item: Parameter, where: str) -> None:
    if item.annotation in _OF_NAMES or get_origin(item.annotation) in _OF_NAMES:
        message = f"{item.annotation!r} is for names of a class or module; write the type alone."
        raise _refused(item, where, message)
    if _mentions(item.annotation, typing.Self):
        raise _refused(item, where, "Self is the class around a method, and a function has none; name the class.")
    if (injected := injected_elsewhere(item.annotation, item.default)) is not None:
        raise _refused(item, where, injected)


def _mentions(annotation: Any, wanted: Any) -> bool:
    return annotation is wanted or any(_mentions(part, wanted) for part in get_args(annotation))


def _plain_properties(parameters: list[Parameter], annotations: Mapping[str, Any]) -> JSON | None:
    """Return the schemas of plain parameters, with defaults; `None` if one of them is not plain."""
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


def _drawn_by_pydantic(parameters: list[Parameter], annotations: Mapping[str, Any], where: str) -> JSON:
    fields: dict[str, Any] = {}
    for index, item in enumerate(parameters):
        # Neutral names in the model: pydantic reserves some, such as `schema` and `copy`.
        if item.make_default is not None:
            field_info = pydantic.Field(default_factory=item.make_default, alias=item.name)
        else:
            field_info = pydantic.Field(... if item.default is MISSING else item.default, alias=item.name)
        fields[f"p{index}"] = (annotations[item.name], field_info)
    try:
        return pydantic_schema.schema_of_arguments(fields)
    except pydantic_schema.NoSchemaError as error:
        # Checked one by one to name the faulty ones; if each is valid alone, they fail in combination.
        faults = [(f"parameter {item.name!r}", _fault(annotations[item.name])) for item in parameters]
        named = [(path, fault) for path, fault in faults if fault] or [("", str(error))]
        problems = [
            Problem(where=where, path=path, message=f"the annotation has no JSON Schema: {fault}")
            for path, fault in named
        ]
        raise DefinitionError(problems) from error


def _fault(annotation: Any) -> str:
    """Return why an annotation alone has no schema; empty if it has one."""
    try:
        pydantic_schema.schema_of_argument(annotation)
    except pydantic_schema.NoSchemaError as error:
        return str(error)
    return ""


def _coercion(item: Parameter, annotation: Any, where: str) -> Coerce | None:
    try:
        conversion = coercion(item.name, annotation)
    except UnfillableError as error:
        raise _refused(item, where, str(error)) from None
    return sparing_none(conversion) if conversion is not None and item.default is None else conversion


def _check_default(item: Parameter, default: Any, schema: JSON, coerce: Coerce | None, where: str) -> None:
    """Refuse a default that no argument could have.

    Raises:
        DefinitionError: it does not fit.
    """
    if _misfits(schema, default):
        kind = schema.get("type") or "its type"
        raise _refused(item, where, f"the default {item.default!r} does not fit {kind}; correct one of them.")
    if coerce is not None:
        try:
            coerce(default)
        except CallError as error:
            raise _refused(item, where, f"the default {item.default!r} does not fit: {error}") from None


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
    """Tell whether a default has another type than its schema, or is not one of the listed values.

    `None` always fits: it commonly means that nothing was given.
    """
    if default is None:
        return False
    if "anyOf" in schema:
        return all(_misfits(each, default) for each in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return default not in schema.get("enum", [schema.get("const")])
    declared: str | list[str] = schema.get("type", [])
    types = [declared] if isinstance(declared, str) else declared
    return bool(types) and not any(_is_of(default, each) for each in types)


def _is_of(default: Any, kind: str) -> bool:
    is_flag_for_number = isinstance(default, bool) and kind in ("integer", "number")
    return isinstance(default, _JSON_TYPES.get(kind, object)) and not is_flag_for_number


def _ordered(schema: JSON) -> JSON:
    """Return a property in the usual order of keys: type and description first, default last."""
    first = {key: schema[key] for key in ("type", "description") if key in schema}
    last = {"default": schema["default"]} if "default" in schema else {}
    return {**first, **{key: value for key, value in schema.items() if key != "default"}, **last}
