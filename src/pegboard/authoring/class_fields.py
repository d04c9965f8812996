"""Class fields: read the parameters of a class tool from its annotations, and set them for a call."""

from __future__ import annotations

import copy
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from inspect import get_annotations
from typing import Any, ClassVar, get_args, get_origin

from msgspec import Struct

from pegboard.authoring.aliases import ParameterName, published, resolve
from pegboard.authoring.field import MISSING, FieldSpec
from pegboard.authoring.parameter_schema import parameter, parameter_schema
from pegboard.authoring.signature import docstring, own_hints
from pegboard.core.schema import shown
from pegboard.model.error import CallError, DefinitionError, Problem
from pegboard.model.json_types import JSON
from pegboard.model.record import replace

_COLLECTIONS = (list, tuple, set, frozenset, Sequence, Iterable, Collection, AbstractSet, typing.List, typing.Tuple)  # noqa: UP006 - what users may write


class ClassFields(Struct, frozen=True, kw_only=True):
    """The parameters of one class: input schema, aliases, and how arguments fill an instance."""

    schema: JSON
    aliases: Mapping[str, str]
    values: Callable[[JSON], JSON]
    names: tuple[str, ...]
    required: frozenset[str]
    defaults: JSON
    readable: tuple[tuple[str, str], ...]
    not_blank: tuple[str, ...]
    takes_extra: bool

    def fill(self, instance: Any, args: JSON, *, coerced: bool = True) -> None:
        """Set an attribute for each parameter and each alias, and `extra`; a missing argument is `None`.

        Raises:
            CallError: `invalid_arguments`, if a type is stricter than its schema.
        """
        absent = {name: copy.deepcopy(value) for name, value in self.defaults.items() if name not in args}
        values = self.values({**absent, **args}) if coerced else args
        for name in self.names:
            setattr(instance, name, values.get(name))
        for alias, target in self.readable:
            setattr(instance, alias, values.get(target))
        instance.extra = {name: value for name, value in args.items() if name not in self.names}

    def check_blank(self, args: JSON) -> None:
        """Refuse a required text that is only white space, which providers' schemas cannot express.

        Raises:
            CallError: `invalid_arguments`.
        """
        blank = [name for name in self.not_blank if _is_blank(args.get(name))]
        if blank:
            listed = "; ".join(f"$.{name}: can't be blank" for name in blank)
            problems = [_problem(name, args[name]) for name in blank]
            text = f"Invalid arguments: {listed}. Correct them and call again."
            raise CallError("invalid_arguments", text, details={"problems": problems})

    def named(self, arguments: JSON) -> JSON:
        """Return arguments passed by hand under the names of their properties.

        Raises:
            TypeError: one is missing or unknown.
        """
        by_property = {self.aliases.get(name, name): value for name, value in arguments.items()}
        missing = sorted(self.required - set(by_property))
        unknown = [] if self.takes_extra else sorted(set(by_property) - set(self.names))
        if missing or unknown:
            raise TypeError(f"missing arguments {missing}, unknown arguments {unknown}; there are {list(self.names)}.")
        return by_property


def read_class(cls: type, *, base: type, additional: bool | JSON | None, where: str) -> ClassFields:
    """Read the annotated fields of a class and its bases; `base` is the first class without parameters: `Tool`.

    `additional` declares further arguments; `None` refuses them without saying so in the schema.

    Raises:
        DefinitionError: invalid fields or aliases.
    """
    parameters = _parameters(cls, base, where)
    described = parameter_schema(parameters, where=where)
    fields = dict(described.fields)
    properties: JSON = described.schema["properties"]
    not_blank: tuple[str, ...] = ()
    for item in parameters:
        if item.is_required:
            properties[item.name] = _not_null(properties[item.name])
            if not item.spec.allow_blank and item.name not in described.coerce and _is_text(properties[item.name]):
                shortest = properties[item.name].setdefault("minLength", 1)
                not_blank += (item.name,) if shortest else ()
    aliases = resolve(_declared(cls, base, fields), where=where)
    schema = published(described.schema, fields, aliases)
    return ClassFields(
        schema=schema if additional is None else {**schema, "additionalProperties": additional},
        aliases=aliases,
        values=described.values,
        names=tuple(fields),
        takes_extra=additional is not None and additional is not False,
        required=frozenset(item.name for item in parameters if item.is_required),
        defaults={name: inner["default"] for name, inner in properties.items() if "default" in inner},
        not_blank=not_blank,
        readable=tuple((alias, target) for alias, target in aliases.items() if not hasattr(base, alias)),
    )


def _parameters(cls: type, base: type, where: str) -> list[Any]:
    # Only of the class itself: the annotations of Tool need not be imported.
    hints: dict[str, Any] = {}
    for owner in _owners(cls, base):
        hints |= own_hints(owner, where=where)
    descriptions: dict[str, str] = docstring(cls)[1]
    annotated = {name for owner in _owners(cls, base) for name in get_annotations(owner)}
    parameters: list[Any] = []
    faults = list(_without_annotation(cls, base))
    for name, annotation in hints.items():
        if name not in annotated or name.startswith("_") or ClassVar in (annotation, get_origin(annotation)):
            continue
        if hasattr(base, name) or any(name in get_annotations(owner) for owner in base.__mro__):
            faults.append((name, f"would hide Tool.{name}: choose another name, with this one as its alias"))
            continue
        if _is_bare_collection(annotation):
            faults.append((name, "Type is required for a collection"))
            continue
        default, spec = _default_of(cls, base, name)
        item = parameter(name, annotation, default=default, description=descriptions.get(name, ""))
        if item.python_name:
            faults.append((name, f"Field(alias={item.name!r}) is pydantic's: call the field so, or use aliases=[…]"))
        # A subclass that only changes the default keeps the field's other settings.
        parameters.append(item if spec is None else replace(item, spec=spec))
    if faults:
        raise DefinitionError([Problem(where=where, path=name, message=text) for name, text in faults])
    return parameters


def _owners(cls: type, base: type) -> list[type]:
    """Return the classes that declare fields, outermost base first."""
    return [owner for owner in reversed(cls.__mro__) if owner not in base.__mro__]


def _without_annotation(cls: type, base: type) -> Iterator[tuple[str, str]]:
    annotated = {name for owner in _owners(cls, base) for name in get_annotations(owner)}
    for owner in _owners(cls, base):
        for name, value in owner.__dict__.items():
            if isinstance(value, FieldSpec) and name not in annotated:
                yield name, f"Field(…) needs an annotation: {name}: str = Field(…)"


def _default_of(cls: type, base: type, name: str) -> tuple[Any, FieldSpec | None]:
    """Return the nearest default, and its base's `Field` if a subclass sets a new default only."""
    default: Any = MISSING
    for owner in cls.__mro__:
        if owner in base.__mro__:
            break
        value = owner.__dict__.get(name, MISSING)
        if isinstance(value, FieldSpec):
            return (value, None) if default is MISSING else (default, value)
        if default is MISSING:
            default = value
        if name in get_annotations(owner):
            break
    return default, None


def _is_bare_collection(annotation: Any) -> bool:
    origin, args = get_origin(annotation), get_args(annotation)
    if any(annotation is bare for bare in _COLLECTIONS):
        return True
    is_wrapper = origin in (typing.Annotated, typing.Union) or str(origin) == "<class 'types.UnionType'>"
    return is_wrapper and any(_is_bare_collection(part) for part in args)


def _declared(cls: type, base: type, fields: Mapping[str, FieldSpec]) -> Iterator[ParameterName]:
    """Yield fields and aliases in order of declaration, those of the bases first."""
    seen: set[str] = set()
    for owner in _owners(cls, base):
        own = [name for name in get_annotations(owner) if name in fields and name not in seen]
        for name in own:
            seen.add(name)
            yield ParameterName(name)
            yield from (ParameterName(alias, name) for alias in fields[name].aliases)
        aliases: Mapping[str, str] = owner.__dict__.get("own_aliases", {})
        yield from (ParameterName(alias, target) for alias, target in aliases.items())


# ---------------------------------------------------------------- required means present, not null and not blank

_NOT_NULL = ["array", "boolean", "number", "object", "string"]


def _not_null(schema: JSON) -> JSON:
    """Return the schema without null among the accepted types."""
    if "anyOf" in schema:
        options = [inner for inner in schema["anyOf"] if inner.get("type") != "null"]
        rest = {key: value for key, value in schema.items() if key != "anyOf"}
        return {**options[0], **rest} if len(options) == 1 else {**rest, "anyOf": options}
    if None in schema.get("enum", ()):
        return {**schema, "enum": [value for value in schema["enum"] if value is not None]}
    if not schema.keys() & {"type", "$ref", "enum", "const", "allOf", "oneOf"}:
        return {"type": _NOT_NULL, **schema}
    return schema


def _is_text(schema: JSON) -> bool:
    return schema.get("type") == "string" and not schema.keys() & {"enum", "const"}


def _is_blank(value: object) -> bool:
    return isinstance(value, str) and not value.strip()


def _problem(name: str, value: str) -> JSON:
    return {"path": f"$.{name}", "rule": "minLength", "message": "can't be blank", "value": shown(value)}
