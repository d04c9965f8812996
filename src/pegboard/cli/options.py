"""Options: the options that all commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from msgspec import Struct, field

from pegboard.cli.command_error import CommandError
from pegboard.cli.completers import tool_names
from pegboard.cli.terminal import Terminal
from pegboard.core.names import nearest
from pegboard.model.record import replace
from pegboard.model.secret import Secret

SUBJECT_TOKEN_VARIABLE = "PEGBOARD_SUBJECT_TOKEN"  # noqa: S105 - the name of a variable
_WORDS = ("user", "space", "roles", "profile", "session")


class Identity(Struct, frozen=True, kw_only=True):
    """The person that the command acts as, from `--as user=ann,space=s1,roles=operator,profile=chat`.

    `subject_token` is their token, which sources may exchange. It comes from the environment, since other users of the
    machine can read the words of a command.
    """

    user: str | None = None
    space: str | None = None
    roles: tuple[str, ...] = ()
    profile: str | None = None
    session: str | None = None
    subject_token: Secret | None = None

    @classmethod
    def parse(cls, text: str) -> Identity:
        """Parse `name=value` pairs, separated by commas; `roles` may be repeated.

        Raises:
            CommandError: another form, an unknown name, or a duplicate.
        """
        words: dict[str, str] = {}
        roles: list[str] = []
        for pair in filter(None, (part.strip() for part in text.split(","))):
            name, separator, value = (part.strip() for part in pair.partition("="))
            if not separator or not value:
                raise CommandError(f"--as {text!r}: {pair!r} is not name=value; write --as user=ann,space=s1.")
            if name not in _WORDS:
                raise CommandError(f"--as {text!r}: unknown name {name!r}.{nearest(name, _WORDS, label='Names')}")
            if name == "roles":
                roles.append(value)
            elif name in words:
                raise CommandError(f"--as {text!r}: {name!r} is given twice.")
            else:
                words[name] = value
        token = os.environ.get(SUBJECT_TOKEN_VARIABLE)
        return cls(roles=tuple(roles), subject_token=Secret(token) if token else None, **words)


Shell = Literal["bash", "zsh", "fish", "powershell"]


class Options(Struct, frozen=True, kw_only=True):
    """The parsed global options, and the terminal to write to."""

    config: Path | None = None
    profile: str | None = None
    identity: Identity = Identity()
    json: bool = False
    terminal: Terminal = field(default_factory=Terminal)
    completion_script: Callable[[Shell], str] = str
    """Returns the completion script of the whole command line for a shell."""

    @property
    def chosen_profile(self) -> str | None:
        """The selected profile: `--profile`, else that of `--as`, else `None`, which means all groups."""
        return self.profile or self.identity.profile

    @property
    def without_profile(self) -> Options:
        """The same options, to look at every profile."""
        return replace(self, profile=None, identity=replace(self.identity, profile=None))

    @property
    def seen_by(self) -> str:
        """A description of the caller."""
        profile = f"for profile {self.chosen_profile!r}" if self.chosen_profile else "in all groups"
        return f"{profile}, as {self.identity.user!r}" if self.identity.user else profile


# The launcher passes SharedOptions to a command; they are never parsed from its words.
SharedOptions = Annotated[Options, Parameter(parse=False)]
Strict = Annotated[bool, Parameter(help="Refuse a config, lock or key store that other users may write.")]
ToolName = Annotated[str, Parameter(help="Name of the tool, or its qualified id namespace.tool.", completer=tool_names)]
