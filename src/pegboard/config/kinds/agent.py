"""Agent: a tool that runs an agent."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pydantic import Field

from pegboard.config.build_context import BuildContext
from pegboard.config.config import Declared
from pegboard.config.forms.value_types import FilledText, Maybe
from pegboard.config.kinds.described import DescribedForm, declare_described
from pegboard.config.yaml.tree import At
from pegboard.extras import needs_package
from pegboard.lazy import LazyModule
from pegboard.model.error import Problem
from pegboard.model.record import replace
from pegboard.model.tool import ToolEntry, ToolSpec
from pegboard.sources.agent_tool import QUERY, agent_entry, parameters_of

if TYPE_CHECKING:
    from pegboard.agents import template_analysis
else:
    template_analysis = LazyModule("pegboard.agents.template_analysis")

_PACKAGES = {"pydantic_ai": "pydantic-ai-slim", "jinja2": "jinja2"}


class AgentForm(DescribedForm):
    """A tool that runs an agent."""

    agent: FilledText = Field(description="The name of the agent.")
    context_transform: Maybe[FilledText] = Field(
        None,
        description="A template that creates the agent's context, as JSON. It reads the arguments of the call as "
        "`data`.",
    )


def declare(tool: Declared[AgentForm], build: BuildContext) -> None:
    """Add the tool to the catalog. Whether the agent exists is checked when all agents are known."""
    form, at = tool.value, tool.at
    if (missing := missing_package()) is not None:
        build.report.add((at / "type").problem(missing))
        return
    transform = form.context_transform
    place = at / "context_transform"
    if transform is not None and (fault := template_analysis.template_fault(transform)) is not None:
        build.report.add(place.problem(f"is not a template: {fault}"))
        return
    names = () if transform is None else template_analysis.names_read(transform)

    def make(spec: ToolSpec) -> ToolEntry:
        if form.parameters is None:
            spec = replace(spec, input_schema=QUERY if transform is None else parameters_of(names))
        spec = replace(spec, timeout_s=spec.timeout_s or build.config.bounds.agent_timeout_s)
        return agent_entry(spec, agent=form.agent, context_transform=transform)

    if form.parameters is not None and (faults := list(_lacking(form, names, place))):
        build.report.add(*faults)
        return
    declare_described(tool, build, make, section="")


def missing_package() -> str | None:
    """Return the error if the packages for agents are not installed; otherwise `None`."""
    missing = next((message for name, message in _PACKAGES.items() if find_spec(name) is None), None)
    return None if missing is None else needs_package(missing, "agents")


def _lacking(form: AgentForm, names: tuple[str, ...], place: At) -> Iterator[Problem]:
    """Yield a problem for each name that the template reads and that is not a declared parameter."""
    declared = form.parameters or {}
    known = declared.get("properties", {}) if isinstance(declared.get("type"), str) else declared
    for name in names:
        if not isinstance(known, dict) or name not in known:
            yield place.problem(f"reads `data.{name}`, which is not one of the parameters. Declare it, or take it out")
