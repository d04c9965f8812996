"""Built: declare the tools that a builder makes for each context, and read what it made."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, cast

from pegboard.authoring.function import function_entry
from pegboard.authoring.options import ToolOptions, origin_of
from pegboard.authoring.tool_class import Tool
from pegboard.model.error import DefinitionError, Problem
from pegboard.model.tool import Annotations, BuilderRef, ToolEntry, ToolSpec

log = logging.getLogger("pegboard")
# A builder has no parameters of its own for these to speak of; what it builds says them.
_OF_THE_BUILT = ("name", "inline", "output", "aliases", "additional_properties")
# These are judged on the declaration, before anything is built.
_OF_THE_DECLARATION = ("available", "factory", "internal_only", "full_names")
_SMALLER_WINS = ("timeout_s", "max_concurrency", "max_result_bytes")
_SAID_ONCE = ("consent", "rate_limit")
_UNSAID = ToolSpec(name="unsaid")


def builder_entries(
    build: Callable[..., Any], names: Sequence[str], description: str | Mapping[str, str], options: ToolOptions
) -> list[ToolEntry]:
    """Return one entry for each name that a builder declares. With `full_names=[]` it is a bundle: it builds any tools.

    Raises:
        DefinitionError: no name at all, an option that only a built tool can have.
    """
    where = origin_of(build)
    unsaid = ToolOptions()
    faults = [f"a builder cannot have {key}=; say it of the tool it builds." for key in _OF_THE_BUILT
              if getattr(options, key) != getattr(unsaid, key)]  # fmt: skip
    if not names:
        faults.append("a builder needs the names of what it builds: a name, a list, or a function that gives a list.")
    if faults:
        raise DefinitionError([Problem(where=where, message=fault) for fault in faults])
    ref = BuilderRef(build=build, names=tuple(names), is_bundle=options.full_names == [])
    words = {name: description if isinstance(description, str) else description.get(name, "") for name in names}
    return [
        ToolEntry(spec=options.base_spec(name=name, description=words[name], origin=where), builder=ref)
        for name in names
    ]


def named_later(
    build: Callable[..., Any],
    names: Callable[[], Sequence[str]],
    description: str | Mapping[str, str],
    options: ToolOptions,
) -> list[ToolEntry]:
    """Return the entries of a builder whose names are only known when they are asked; none when that fails."""
    try:
        return builder_entries(build, tuple(names()), description, options)
    except Exception as error:  # boundary: foreign code; one builder must not empty the catalog
        log.warning("The names of builder %s are not known: its tools are left out.", origin_of(build), exc_info=error)
        return []


def read_built(built: Any, declared: ToolEntry | None) -> list[ToolEntry]:
    """Return the entries for what a builder gave (`declared` is its entry), or a view was given as an extra tool.

    Raises:
        DefinitionError: something is no tool, or says of itself what its declaration decides.
    """
    if isinstance(built, list | tuple):
        return [entry for item in cast("Sequence[object]", built) for entry in read_built(item, declared)]
    if isinstance(built, ToolEntry):
        made = built
    elif isinstance(built, type) and issubclass(built, Tool) and not built.is_abstract:
        made = built.tool_entry
    elif callable(cast("object", built)):
        made = function_entry(cast("Callable[..., Any]", built), ToolOptions())
    else:
        raise DefinitionError(f"{built!r} is no tool: give a function, a Tool class or ToolSpec(…).bind(handler).")
    return [made] if declared is None else [replace(made, spec=_merged(made.spec, declared.spec), fingerprint="")]


def _merged(made: ToolSpec, declared: ToolSpec) -> ToolSpec:
    """Return the built declaration under the guards of its builder's: a guard that either has holds."""
    said = [name for name in _OF_THE_DECLARATION if getattr(made, name) != getattr(_UNSAID, name)]
    twice = [name for name in _SAID_ONCE if _differ(name, made, declared)]
    if said or twice:
        raise DefinitionError(
            f"the built tool {made.name!r} says {', '.join(said + twice)}: say it in one place, at the builder "
            f"({declared.origin})."
        )
    kept = ("name", "input_schema", "output_schema", "aliases", "allow_unknown", "origin", *_OF_THE_DECLARATION)
    lent = {
        item.name: getattr(declared, item.name)
        for item in fields(ToolSpec)
        if item.name not in kept and getattr(made, item.name) == getattr(_UNSAID, item.name)
    }
    smaller = {
        name: min(limits)
        for name in _SMALLER_WINS
        if (limits := [limit for limit in (getattr(made, name), getattr(declared, name)) if limit is not None])
    }
    hints = _hints(made.annotations, declared.annotations)
    own = {"namespace": declared.namespace, "groups": declared.groups, "annotations": hints}
    return replace(made, **{**lent, **smaller, **own})


def _differ(name: str, made: ToolSpec, declared: ToolSpec) -> bool:
    one, other, unsaid = getattr(made, name), getattr(declared, name), getattr(_UNSAID, name)
    return unsaid not in (one, other) and one != other


def _hints(made: Annotations, declared: Annotations) -> Annotations:
    lent = {
        item.name: getattr(declared, item.name)
        for item in fields(Annotations)
        if item.name != "extra" and getattr(made, item.name) is None
    }
    return replace(made, **lent, extra={**declared.extra, **made.extra})
