"""Internal: a tool that runs a Python function of the operator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import Field

from pegboard.authoring.definition import ToolOptions, function_entry
from pegboard.authoring.tool_class import Tool
from pegboard.config.build_context import BuildContext
from pegboard.config.config import Declared
from pegboard.config.forms.value_types import Anything, Flag, Maybe, Reference, Text
from pegboard.config.kinds.tool_form import ToolForm, check_aliases, check_examples, overlaid
from pegboard.config.parameters import misfits, read_parameters
from pegboard.config.yaml.tree import Table
from pegboard.core.digests import digest
from pegboard.core.names import fold, nearest_one
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.record import replace
from pegboard.model.tool import ToolEntry


class InternalForm(ToolForm):
    """A tool that runs a Python function."""

    handler: Maybe[Reference] = Field(
        None,
        description="The function, as `python:module:function`. Default: the function that a module under `python:` "
        "registers for this tool.",
    )
    parameters: Maybe[Mapping[Text, Anything]] = Field(
        None,
        description=(
            "The arguments: `{query: {type: string, required: true}}`, or a JSON Schema. Default: the function's "
            "parameters."
        ),
    )
    inline: Maybe[Flag] = Field(
        None, description="Run a synchronous function in the event loop; only for functions that never wait."
    )


def declare(tool: Declared[InternalForm], build: BuildContext) -> None:
    """Add the tool to the catalog, with the function that it names or that is registered under its name."""
    base = _base(tool, build)
    if base is None:
        return
    entry = replace(base, spec=overlaid(base.spec, tool, build), fingerprint="", wire_name="")
    if tool.value.inline is not None and base.runs != "async":
        entry = replace(entry, runs="inline" if tool.value.inline else "thread")
    entry = _with_parameters(entry, tool, build)
    if entry is None:
        return
    entry = replace(entry, spec=check_aliases(entry.spec, tool, build))
    try:
        build.catalog.registry.add(entry)
        check_examples(entry, tool, build)
    except (DefinitionError, CallError) as error:
        build.refused(error, tool.at / "parameters" if tool.value.parameters is not None else tool.at)


def _base(tool: Declared[InternalForm], build: BuildContext) -> ToolEntry | None:
    """Return the function as a tool, still with its own description; `None` after reporting that there is none."""
    form, at = tool.value, tool.at
    namespace = form.option("namespace")
    # `namespace:` may move a tool registered in `main`; one that is registered in that namespace takes precedence.
    names = (form.name,) if namespace is None else (f"{namespace}.{form.name}", form.name)
    registered = next((build.registered[fold(name)] for name in names if fold(name) in build.registered), None)
    if form.handler is not None:
        if registered is not None and not build.is_private:
            build.report.add(
                (at / "name").problem(
                    f"the tool {form.name!r} is declared twice: at {at.origin} and at {registered.spec.origin}. "
                    "Rename one, or remove `handler:` to describe that function here"
                )
            )
            return None
        target = build.resolve(form.handler, at / "handler")
        entry = None if target is None else _entry(target, tool, build)
        return None if entry is None else replace(entry, reaches=digest(form.handler))
    if registered is None:
        # A misspelled `handler` was reported already: its absence is not a second mistake.
        keys = at.node.items.keys() if isinstance(at.node, Table) else set[str]()
        is_misspelled = nearest_one("handler", keys - type(form).model_fields.keys()) is not None
        if not build.missed and not is_misspelled:
            near = nearest_one(fold(form.name), build.registered)
            build.report.add(
                (at / "handler").problem(
                    f"nothing runs {form.name!r}: give `handler: python:module:function`, or register that function "
                    "in a module under `python:`" + (f" (there is {near!r})" if near else "")
                )
            )
        return None
    if registered.handler is None:
        build.report.add(
            (at / "name").problem(f"{form.name!r} is made by a builder ({registered.spec.origin}); describe it there")
        )
        return None
    if not build.is_private:
        build.catalog.registry.remove(registered.qualified_id)
    return registered


def _entry(
    target: Callable[..., Any] | ToolEntry, tool: Declared[InternalForm], build: BuildContext
) -> ToolEntry | None:
    """Return the tool for `handler:`: a function, a class tool, or a specification with a handler."""
    if isinstance(target, ToolEntry):
        return target
    if inspect.isclass(target) and issubclass(target, Tool) and not target.is_abstract:
        return target.tool_entry
    try:
        return function_entry(target, ToolOptions())
    except DefinitionError as error:
        build.refused(error, tool.at / "handler")
        return None


def _with_parameters(entry: ToolEntry, tool: Declared[InternalForm], build: BuildContext) -> ToolEntry | None:
    """Return the entry with the declared parameters if they fit the function; without declared ones, unchanged."""
    declared, at = tool.value.parameters, tool.at / "parameters"
    if declared is None:
        return entry
    schema, problems = read_parameters(declared, at)
    spec = entry.spec
    problems = problems or list(misfits(schema, spec.input_schema, takes_extra=spec.allow_unknown, at=at))
    build.report.add(*problems)
    # The function may accept anything, but calls may pass only the declared parameters.
    return None if problems else replace(entry, spec=replace(spec, input_schema=schema, allow_unknown=False))
