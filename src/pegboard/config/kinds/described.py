"""Described: a tool whose parameters are declared in the config only."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pydantic import Field

from pegboard.config.build_context import BuildContext
from pegboard.config.config import Declared
from pegboard.config.forms.value_types import Anything, Maybe, Text
from pegboard.config.kinds.tool_form import ToolForm, check_aliases, check_examples, overlaid
from pegboard.config.parameters import read_parameters
from pegboard.config.yaml.tree import At
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.json_types import JSON
from pegboard.model.tool import ToolEntry, ToolSpec


class DescribedForm(ToolForm):
    """A tool whose parameters are declared in the config."""

    parameters: Maybe[Mapping[Text, Anything]] = Field(
        None, description="The arguments: `{query: {type: string, required: true}}`, or a JSON Schema. Default: none."
    )


def declare_described(
    tool: Declared[DescribedForm], build: BuildContext, make: Callable[[ToolSpec], ToolEntry], *, section: str
) -> None:
    """Add the entry that `make` creates to the catalog; its problems are reported below `section`."""
    form, at = tool.value, tool.at
    spec = described_spec(tool, build)
    if spec is None:
        return
    try:
        entry = make(spec)
    except DefinitionError as error:
        build.report.add(
            *(
                _place(at / section if section else at, problem.path).problem(problem.message)
                for problem in error.problems
            )
        )
        return
    try:
        build.catalog.registry.add(entry)
        check_examples(entry, tool, build)
    except (DefinitionError, CallError) as error:
        build.refused(error, at / "parameters" if form.parameters is not None else at)


def described_spec(tool: Declared[DescribedForm], build: BuildContext) -> ToolSpec | None:
    """Return the declaration in the config; `None` if its parameters are not a schema."""
    schema: JSON = {"type": "object", "properties": {}}
    if tool.value.parameters is not None:
        schema, problems = read_parameters(tool.value.parameters, tool.at / "parameters")
        build.report.add(*problems)
        if problems:
            return None
    return check_aliases(overlaid(ToolSpec(name=tool.value.name, input_schema=schema), tool, build), tool, build)


def _place(at: At, path: str) -> At:
    """Return the place of a problem; `headers.X` is a key of `headers`, even if it contains dots."""
    first, _, rest = path.partition(".")
    return (at / first / rest if rest else at / first) if first else at
