"""Profile form: the keys of one entry under `profiles:`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from pegboard.config.forms.value_types import Flag, Form, Limit, Maybe, Names, PositiveWhole, ToolName, definition_error


class RenameForm(Form):
    """Other names for the meta tools in a profile."""

    searchTools: Maybe[ToolName] = Field(None, description="Another name for `searchTools`.")  # noqa: N815 - its name
    getTools: Maybe[ToolName] = Field(None, description="Another name for `getTools`.")  # noqa: N815 - its name
    useTools: Maybe[ToolName] = Field(None, description="Another name for `useTools`.")  # noqa: N815 - its name

    def names(self) -> dict[str, str]:
        """Return the new names by the names that they replace."""
        names = {"searchTools": self.searchTools, "getTools": self.getTools, "useTools": self.useTools}
        return {name: other for name, other in names.items() if other is not None}

    @model_validator(mode="after")
    def _says_three_names(self) -> RenameForm:
        named = {name: name for name in ("searchTools", "getTools", "useTools")} | self.names()
        if len({name.casefold() for name in named.values()}) < len(named):
            text = "two of the meta tools would have one name; give each a name of its own"
            raise definition_error(text)
        return self


class ProfileForm(Form):
    """The tools that one kind of caller sees."""

    include: Maybe[Names] = Field(None, description="The groups whose tools are visible. Default: all groups.")
    allow: Maybe[Names] = Field(
        None, description="Globs over tool names, such as `fs__*`: only these tools. An empty list allows none."
    )
    deny: Names = Field((), description="Globs over tool names: never these tools. Deny wins over allow.")
    exposure: Literal["direct", "two_tool", "search", "auto"] = Field(
        "auto",
        description=(
            "How the tools are presented: `direct` lists all of them; `two_tool` lists only getTools and useTools; "
            "`search` adds searchTools; `auto` is direct while the list fits into `token_budget`, and search "
            "otherwise."
        ),
    )
    token_budget: PositiveWhole = Field(
        8_000, description="The size limit of the list with `auto`, in tokens (bytes / 4.3)."
    )
    pinned: Names = Field((), description="Globs over tool names: these are listed in addition to the meta tools.")
    rename: Maybe[RenameForm] = Field(None, description="Other names for the meta tools.")
    require_context: Flag = Field(
        False, description="Whether useTools requires workspace, session, memory and goal in its `context`."
    )
    rate_limit: Maybe[Limit] = Field(None, description="A limit on all calls of one caller in this profile.")

    @model_validator(mode="after")
    def _says_nothing_in_vain(self) -> ProfileForm:
        asked = ["token_budget"] if self.exposure != "auto" else []
        asked += ["pinned", "rename", "require_context"] if self.exposure == "direct" else []
        idle = [name for name in asked if name in self.model_fields_set]
        if idle:
            text = f"`{idle[0]}` changes nothing with `exposure: {self.exposure}`; remove one of the two"
            raise definition_error(text)
        return self
