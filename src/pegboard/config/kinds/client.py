"""Client: a tool that is shown to the model and executed by the host of the conversation."""

from __future__ import annotations

from pydantic import Field

from pegboard.config.build_context import BuildContext
from pegboard.config.config import Declared
from pegboard.config.forms.value_types import Flag
from pegboard.config.kinds.described import DescribedForm, declare_described
from pegboard.model.error import DefinitionError, Problem
from pegboard.model.tool import ToolEntry, ToolSpec
from pegboard.sources.client import client_entry


class ClientForm(DescribedForm):
    """A tool that the model sees and that your own program runs."""

    wait: Flag = Field(
        False,
        description=(
            "Whether a call waits for the answer of your program, which becomes the result. Without "
            'it, the call returns {"ok": true} at once.'
        ),
    )


def declare(tool: Declared[ClientForm], build: BuildContext) -> None:
    """Add the tool to the catalog."""

    def make(spec: ToolSpec) -> ToolEntry:
        if spec.output_schema is not None and not tool.value.wait:
            text = 'without `wait: true` the result is {"ok": true}. Remove `output`, or wait'
            raise DefinitionError(Problem(path="output", message=text))
        return client_entry(spec, wait=tool.value.wait)

    declare_described(tool, build, make, section="")
