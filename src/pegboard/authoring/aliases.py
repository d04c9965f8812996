"""Aliases: other names that a tool accepts for its parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from pegboard.authoring.field import FieldSpec
from pegboard.model.error import DefinitionError, Problem
from pegboard.model.json_types import JSON


class ParameterName(NamedTuple):
    """A property, or an alias with its declared target, in order of declaration."""

    name: str
    stands_for: str | None = None


def declared(fields: Mapping[str, FieldSpec], aliases: Mapping[str, str]) -> Iterator[ParameterName]:
    """Yield properties, each with the aliases of its field, then the aliases declared for the whole tool."""
    for name, field in fields.items():
        yield ParameterName(name)
        yield from (ParameterName(alias, name) for alias in field.aliases)
    yield from (ParameterName(alias, target) for alias, target in aliases.items())


def resolve(items: Iterable[ParameterName], *, where: str) -> dict[str, str]:
    """Return every alias with its property; an alias of an alias resolves to the property.

    Raises:
        DefinitionError: invalid aliases, all of them.
    """
    listed = list(items)
    every = {item.name for item in listed if item.stands_for is None}
    chain = {item.name: item.stands_for for item in listed if item.stands_for is not None and item.name not in every}
    aliases: dict[str, str] = {}
    so_far: set[str] = set()
    faults: list[str] = []
    for name, stands_for in listed:
        target = None if stands_for is None else _followed(stands_for, chain, every)
        if stands_for is None:
            if name in aliases:
                faults.append(f"Cannot define property {name!r} because it is already defined as an alias")
            so_far.add(name)
        elif target is None:
            faults.append(f"Cannot alias unknown property {stands_for!r}")
        elif name == target:
            faults.append(f"Cannot alias property {name!r} to itself")
        elif name in so_far:
            faults.append(f"Cannot alias {name!r} because it is already defined as a property")
        elif aliases.get(name, target) != target:
            faults.append(f"Alias {name!r} already points to property {aliases[name]!r}")
        else:
            aliases[name] = target
    if faults:
        raise DefinitionError([Problem(where=where, message=fault) for fault in faults])
    return aliases


def _followed(name: str, chain: Mapping[str, str], properties: set[str]) -> str | None:
    """Return the property at the end of a chain of aliases; `None` if it ends nowhere or in a circle."""
    for _ in range(len(chain) + 1):
        if name in properties:
            return name
        if name not in chain:
            return None
        name = chain[name]
    return None


def published(schema: JSON, fields: Mapping[str, FieldSpec], aliases: Mapping[str, str]) -> JSON:
    """Return the schema with the published aliases: like their property, without its default.

    A required property must be given under one of its names.
    """
    targets = {
        alias: target
        for alias, target in aliases.items()
        if target in fields and fields[target].publish_alias and alias in fields[target].aliases
    }
    if not targets:
        return schema
    properties = schema["properties"]
    shown: JSON = {
        alias: {key: value for key, value in properties[target].items() if key != "default"}
        for alias, target in targets.items()
    }
    names: dict[str, list[str]] = {}
    for alias, target in targets.items():
        names.setdefault(target, [target]).append(alias)
    required = [name for name in schema.get("required", ()) if name not in names]
    either = [
        {"anyOf": [{"required": [name]} for name in names[target]]}
        for target in schema.get("required", ())
        if target in names
    ]
    rest = {key: value for key, value in schema.items() if key != "required"}
    return {
        **rest,
        "properties": {**properties, **shown},
        **({"required": required} if required else {}),
        **(either[0] if len(either) == 1 else {"allOf": either} if either else {}),
    }
