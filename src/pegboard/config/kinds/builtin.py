"""Builtin: one of the tools that come with Pegboard, with its own config."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, ValidationError

from pegboard.config.build_context import BuildContext
from pegboard.config.config import Declared
from pegboard.config.deciding_files import DecidingFiles, deciding_tables
from pegboard.config.forms.validation import explain
from pegboard.config.forms.value_types import Concealed, Maybe, Text, ToolName
from pegboard.config.kinds.tool_form import ToolForm, check_aliases, check_examples, overlaid
from pegboard.config.language_models import models_of
from pegboard.config.workspace import groups_with_both
from pegboard.core.names import nearest
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.record import replace
from pegboard.sources.builtin.builtins import BUILTINS, builtin_kind
from pegboard.sources.builtin.kind import Services


class BuiltinForm(ToolForm):
    """A tool that comes with Pegboard; `name` selects it."""

    as_: Maybe[ToolName] = Field(
        None, alias="as", description="Another name for the tool, if it is declared more than once."
    )
    config: Mapping[Text, Concealed] = Field(
        default_factory=dict[str, object], description="The tool's settings, which differ from tool to tool."
    )

    @property
    def called(self) -> str:
        """The name that callers use."""
        return self.as_ or self.name

    @property
    def when_repeated(self) -> str:
        """A hint for two tools with the same name."""
        return f"Give one of them another name: `as: my_{self.name}`"


def declare(tool: Declared[BuiltinForm], build: BuildContext) -> None:
    """Add the tool to the catalog, if its config is valid."""
    form, at = tool.value, tool.at
    if form.name not in BUILTINS:
        unknown = f"there is no built-in tool {form.name!r}.{nearest(form.name, BUILTINS, label='Built-in tools')}"
        build.report.add((at / "name").problem(unknown))
        return
    kind = builtin_kind(form.name)
    folder = build.config.path.absolute().parent
    services = Services(
        folder=folder,
        clock=build.catalog.executor.ports.clock,
        bounds=build.config.bounds,
        models=models_of(build),
        documents=build.documents,
        decides=DecidingFiles(build.config),
        deciding_tables=deciding_tables(build.config),
    )
    try:
        settings = kind.configured(form.config)
        entry = kind.entry(settings, services)
    except ValidationError as error:
        build.report.add(*explain(error, at / "config" if (at / "config").exists else at, kind.config))
        return
    except DefinitionError as error:
        build.refused(error, at / "config")
        return
    build.catalog.add_secrets(*settings.secrets())
    spec = replace(overlaid(entry.spec, tool, build), name=form.called)
    spec = replace(spec, groups=tuple(dict.fromkeys((*spec.groups, *groups_with_both(build.config, form.name)))))
    entry = replace(entry, spec=check_aliases(spec, tool, build), fingerprint="", wire_name="")
    try:
        build.catalog.registry.add(entry)
        check_examples(entry, tool, build)
    except (DefinitionError, CallError) as error:
        build.refused(error, at)
