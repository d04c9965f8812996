"""Builder: declares the tools that a builder makes for each context, and reads the built tools."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from pegboard.authoring.function import function_entry
from pegboard.authoring.option_table import OPTIONS, value_at, with_values
from pegboard.authoring.options import ToolOptions
from pegboard.authoring.signature import origin_of
from pegboard.authoring.tool_class import Tool
from pegboard.model.error import DefinitionError, Problem
from pegboard.model.record import replace
from pegboard.model.tool import BuilderRef, ToolEntry, ToolSpec

log = logging.getLogger("pegboard")
_DEFAULTS = ToolSpec(name="default")


def builder_entries(
    build: Callable[..., Any], names: Sequence[str], description: str | Mapping[str, str], options: ToolOptions
) -> list[ToolEntry]:
    """Return one entry per declared name. With `full_names=[]` the builder is a bundle and builds any tools.

    Raises:
        DefinitionError: no names, or an option that only a built tool can have.
    """
    where = origin_of(build)
    faults = [
        f"a builder cannot have {option.name}=; set it on the tool that it builds."
        for option in OPTIONS
        if (option.of_code or option.name == "name") and options[option.name] != option.default
    ]
    if not names:
        faults.append("a builder needs the names of what it builds: a name, a list, or a function that gives a list.")
    if faults:
        raise DefinitionError([Problem(where=where, message=fault) for fault in faults])
    ref = BuilderRef(build=build, names=tuple(names), is_bundle=options["full_names"] == [])
    described = {name: description if isinstance(description, str) else description.get(name, "") for name in names}
    return [
        ToolEntry(spec=options.base_spec(name=name, description=described[name], origin=where), builder=ref)
        for name in names
    ]


def named_later(
    build: Callable[..., Any],
    names: Callable[[], Sequence[str]],
    description: str | Mapping[str, str],
    options: ToolOptions,
) -> list[ToolEntry]:
    """Return the entries of a builder whose names are computed on demand; none if that fails."""
    try:
        return builder_entries(build, tuple(names()), description, options)
    except Exception as error:  # boundary: foreign code; one builder must not empty the catalog
        log.warning("The names of builder %s are not known: its tools are left out.", origin_of(build), exc_info=error)
        return []


def read_built(built: Any, declared: ToolEntry | None) -> list[ToolEntry]:
    """Return the entries for the tools of a builder (`declared` is its entry), or for a view's extra tools.

    Raises:
        DefinitionError: an object is not a tool, or sets an option that only its declaration may set.
    """
    if isinstance(built, list | tuple):
        return [entry for item in cast("Sequence[object]", built) for entry in read_built(item, declared)]
    if isinstance(built, ToolEntry):
        entry = built
    elif isinstance(built, type) and issubclass(built, Tool) and not built.is_abstract:
        entry = built.tool_entry
    elif callable(cast("object", built)):
        entry = function_entry(cast("Callable[..., Any]", built), ToolOptions())
    else:
        raise DefinitionError(f"{built!r} is not a tool: give a function, a Tool class or ToolSpec(…).bind(handler).")
    if declared is None:
        return [entry]
    return [replace(entry, spec=_joined(entry.spec, declared.spec), fingerprint="")]


def _joined(built: ToolSpec, declared: ToolSpec) -> ToolSpec:
    """Return the built declaration combined with the guards of its builder: all guards of both apply.

    Raises:
        DefinitionError: the built tool sets an option of its builder, or contradicts it.
    """
    values: dict[tuple[str, ...], Any] = {}
    refused: list[str] = []
    differing: list[str] = []
    for option in OPTIONS:
        if not option.path or option.built == "built":
            continue
        default, own, lent = (value_at(spec, option.path) for spec in (_DEFAULTS, built, declared))
        if option.built == "declaration" and own != default:
            refused.append(option.name)
        elif option.built == "same" and default not in (own, lent) and own != lent:
            differing.append(option.name)
        elif option.built == "builder" or (option.built in ("lent", "same") and own == default):
            values[option.path] = lent
        elif option.built == "merged":
            values[option.path] = {**lent, **own}
        elif option.built == "smaller" and (limits := [limit for limit in (own, lent) if limit is not None]):
            values[option.path] = min(limits)
    if refused or differing:
        raise DefinitionError(
            f"the built tool {built.name!r} says {', '.join(refused + differing)}: say it in one place, at the builder "
            f"({declared.origin})."
        )
    return with_values(built, values)
