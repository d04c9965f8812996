"""Profile form: the keys of one entry under `profiles:`."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag, model_validator

from pegboard.config.forms.value_types import (
    MAPPING,
    TEXT,
    Flag,
    Form,
    Limit,
    Maybe,
    Names,
    PositiveWhole,
    ToolName,
    definition_error,
)

ExposureMode: TypeAlias = Literal["direct", "two_tool", "search", "auto"]


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
            text = "two of the meta tools would have the same name; give each its own"
            raise definition_error(text)
        return self


class ExposureForm(Form):
    """How the tools of a profile are presented, and which of them are left out."""

    mode: ExposureMode = Field("auto", description="How the tools are presented, with the values of `exposure`.")
    hide_unconnected: Flag = Field(
        False,
        description=(
            "Whether a tool is hidden if the caller has not connected the account that the tool needs. By "
            "default, the tool is listed, and a call returns a link to connect the account."
        ),
    )


class ProfileForm(Form):
    """The tools that one kind of caller sees."""

    include: Maybe[Names] = Field(None, description="The groups whose tools are visible. Default: all groups.")
    allow: Maybe[Names] = Field(
        None, description="Globs over tool names, such as `fs__*`: only these tools. An empty list allows none."
    )
    deny: Names = Field((), description="Globs over tool names: never these tools. Deny wins over allow.")
    exposure: Annotated[
        Annotated[ExposureForm, Tag(MAPPING)] | Annotated[ExposureMode, Tag(TEXT)],
        Discriminator(lambda value: MAPPING if isinstance(value, dict | ExposureForm) else TEXT),
    ] = Field(
        "auto",
        description=(
            "How the tools are presented: `direct` lists all of them; `two_tool` lists only getTools and useTools; "
            "`search` adds searchTools; `auto` is direct while the list fits into `token_budget`, and search "
            "otherwise. To set other options too, write a mapping, with this value as `mode`."
        ),
    )
    token_budget: PositiveWhole = Field(
        8_000, description="The size limit of the list with `auto`, in tokens (bytes / 4.3)."
    )
    pinned: Names = Field(
        (), description="Globs over tool names: these are listed in addition to the meta tools, such as useTools."
    )
    rename: Maybe[RenameForm] = Field(None, description="Other names for the meta tools.")
    require_context: Flag = Field(
        False,
        description="Whether the argument `context` of useTools must contain workspace, session, memory and goal.",
    )
    rate_limit: Maybe[Limit] = Field(None, description="A limit on all calls of one caller in this profile.")

    @property
    def mode(self) -> ExposureMode:
        """How the tools are presented."""
        return self.exposure.mode if isinstance(self.exposure, ExposureForm) else self.exposure

    @property
    def hide_unconnected(self) -> bool:
        """Whether tools whose account is not connected are hidden."""
        return isinstance(self.exposure, ExposureForm) and self.exposure.hide_unconnected

    @model_validator(mode="after")
    def _says_nothing_in_vain(self) -> ProfileForm:
        asked = ["token_budget"] if self.mode != "auto" else []
        asked += ["pinned", "rename", "require_context"] if self.mode == "direct" else []
        idle = [name for name in asked if name in self.model_fields_set]
        if idle:
            text = f"`{idle[0]}` changes nothing with `exposure: {self.mode}`; remove one of the two"
            raise definition_error(text)
        return self
