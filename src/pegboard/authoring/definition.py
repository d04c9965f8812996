"""Definition: converts the arguments of `Catalog.register` to entries."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any

from pegboard.authoring.builder import builder_entries, named_later, read_built
from pegboard.authoring.function import function_entry
from pegboard.authoring.options import ToolOptions
from pegboard.authoring.signature import origin_of
from pegboard.authoring.tool_class import Tool
from pegboard.core.validated_entry import check_root
from pegboard.model.call_context import CallContext
from pegboard.model.context import ToolContext
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSON
from pegboard.model.record import replace
from pegboard.model.tool import Handler, Runs, ToolEntry, ToolSpec

__all__ = [
    "ToolOptions",
    "builder_entries",
    "function_entry",
    "named_later",
    "origin_of",
    "read_built",
    "read_registered",
]


_CONTEXT_NAMES = ("ctx", "context")


def read_registered(
    tool: type[Tool] | ToolSpec | ToolEntry, handler: Callable[..., Any] | None, runs: Runs | None
) -> ToolEntry:
    """Return the entry for the arguments of `Catalog.register`.

    Raises:
        DefinitionError: it is not a tool, a spec without a handler, or a handler that does not fit the schema.
    """
    if isinstance(tool, ToolEntry):
        return tool
    if isinstance(tool, ToolSpec) and handler is not None:
        spec = replace(tool, origin=tool.origin or origin_of(handler))
        return ToolEntry(spec=spec, handler=spec_handler(handler, spec), runs=runs or _runs_of(handler))
    if isinstance(tool, type) and issubclass(tool, Tool) and not tool.is_abstract:  # pyright: ignore[reportUnnecessaryIsInstance] - a caller may err
        return tool.tool_entry
    if isinstance(tool, ToolSpec):
        raise DefinitionError(f"{tool.name!r} has no handler: register(ToolSpec(…), handler=function).")
    if isinstance(tool, type) and issubclass(tool, Tool):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller may err
        raise DefinitionError(f"{tool.__name__} is abstract: register a concrete Tool class below it.")
    if callable(tool):
        name = getattr(tool, "__name__", "it")
        raise DefinitionError(f"{name!r} is a function: declare it with `catalog.tool({name})`, or as its decorator.")
    if isinstance(tool, dict):
        raise DefinitionError(
            "A definition without its handler cannot be registered: "
            "for one of OpenAI, write register(ToolSpec.from_openai(definition), handler=function)."
        )
    raise DefinitionError(f"{tool!r} cannot be registered: give a concrete Tool class, or ToolSpec(…), handler=….")


def spec_handler(handler: Callable[..., Any], spec: ToolSpec) -> Handler:
    """Return a spec's handler in its normal form: `(ctx, args)`.

    Two forms are accepted: `(ctx, args)` with the whole object, and one parameter per property (or `**kwargs`), as in
    functions for OpenAI definitions. In the second form the context goes to a parameter that is annotated with its
    class, or called `ctx` or `context`.

    Raises:
        DefinitionError: a parameter without a default is not in the schema.
    """
    check_root(spec.input_schema)
    properties = set(spec.input_schema.get("properties", {}))
    parameters = _filled(list(inspect.signature(handler).parameters.values()), properties)
    injected = next((item.name for item in parameters if _is_context(item.annotation)), None)
    named = [item for item in parameters if item.kind is not item.VAR_KEYWORD and item.name != injected]
    strange = [item.name for item in named if item.name not in properties]
    if len(strange) == 2 == len(parameters) and parameters[1].name in _CONTEXT_NAMES:
        names = ", ".join(item.name for item in parameters)
        raise DefinitionError(f"{spec.origin}: the handler of {spec.name!r} takes ({names}); swap them: (ctx, args).")
    if len(parameters) == 2 and _is_whole(parameters, properties):
        return handler
    if injected is None:
        # Without an annotation, the name of a parameter that no property fills.
        injected = next((name for name in _CONTEXT_NAMES if name in strange), None)
    missing = [item.name for item in named if item.name in strange and item.default is item.empty]
    missing = [name for name in missing if name != injected]
    if missing:
        raise DefinitionError(
            f"{spec.origin}: the handler of {spec.name!r} asks for {missing}, which its schema does not have. "
            f"Its properties are {sorted(properties)}; or take (ctx, args), the whole object."
        )

    def by_name(ctx: CallContext, args: JSON) -> Any:
        return handler(**args) if injected is None else handler(**args, **{injected: ctx})

    return by_name


def _filled(parameters: list[inspect.Parameter], properties: set[str]) -> list[inspect.Parameter]:
    """Leave out parameters that a call does not fill: after two, those with a default and no property.

    `lambda ctx, args, city=city: …` keeps the value of a loop.
    """
    has_whole = "args" not in properties and [item.name for item in parameters[1:2]] == ["args"]
    by_name = set[str]() if has_whole else properties
    return [
        item
        for number, item in enumerate(parameters)
        if number < 2 or item.default is item.empty or item.name in by_name
    ]


def _is_whole(parameters: Sequence[inspect.Parameter], properties: Collection[str]) -> bool:
    """Tell whether a handler takes `(ctx, args)`; if `args` is a property, only where no argument fills the first."""
    first, second = parameters
    if second.kind is second.VAR_KEYWORD or second.name in _CONTEXT_NAMES or _is_context(second.annotation):
        return False
    if second.name not in properties:
        return True
    is_unfilled = first.annotation is first.empty and first.default is first.empty and first.name not in properties
    return is_unfilled and (second.name == "args" or first.name not in _CONTEXT_NAMES)


def _is_context(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.rpartition(".")[2] in ("ToolContext", "CallContext")
    return inspect.isclass(annotation) and issubclass(annotation, ToolContext)


def _runs_of(handler: Callable[..., Any]) -> Runs:
    """Return how a handler runs: coroutine functions on the loop, others in a worker thread."""
    is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))
    return "async" if is_async else "thread"
