"""Project: find, load and open the catalog that a command works on."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, redirect_stdout
from functools import partial
from pathlib import Path

from msgspec import Struct

from pegboard.catalog import Catalog
from pegboard.cli.command_error import CommandError
from pegboard.cli.options import Identity, Options
from pegboard.cli.source_startup import start_needed
from pegboard.cli.terminal import Terminal
from pegboard.config import Config, context_for, load_catalog, warnings
from pegboard.config.yaml.config_files import named_variables
from pegboard.core.view import View
from pegboard.model.consent import Approve
from pegboard.model.context import ToolContext
from pegboard.model.error import DefinitionError, Problem
from pegboard.model.json_types import JSONValue
from pegboard.model.secret import Secret
from pegboard.platforms import platform

CLI_STOP_GRACE_S = 1.0  # seconds for running calls when a command ends

CONFIG_NAME = "pegboard.yaml"


def find_config(named: Path | None, *, start: Path) -> Path:
    """Return the config file: the one named, or the first `pegboard.yaml` in `start` or above it.

    Raises:
        CommandError: there is none, or the one found above belongs to another user.
    """
    if named is not None:
        path = named / CONFIG_NAME if named.is_dir() else named
        if not path.is_file():
            raise CommandError(
                f"The config file {str(path)!r} does not exist. Name another with --config, or run `pegboard init`.",
                kind="config_missing",
            )
        return path
    for folder in (start, *start.parents):
        path = folder / CONFIG_NAME
        if path.is_file():
            # The file names modules to import: one that somebody left in a shared folder above must not run as us.
            if folder != start and platform.is_of_another_user(path.stat()):
                raise CommandError(
                    f"{str(path)!r} belongs to another user and is not used. Name it with --config if you trust it.",
                    kind="config_missing",
                )
            return path if folder != start else Path(CONFIG_NAME)
    raise CommandError(
        f"There is no {CONFIG_NAME} here or in a folder above. Run `pegboard init` to write one, "
        "or name one with --config PATH.",
        kind="config_missing",
    )


class Project(Struct, frozen=True, kw_only=True):
    """A loaded config and its catalog."""

    catalog: Catalog
    config: Config

    def context(self, identity: Identity, *, approve: Approve | None = None) -> ToolContext:
        """Return the context of the person that the command acts as."""
        return context_for(
            self.config,
            user=identity.user,
            space=identity.space,
            roles=identity.roles,
            session=identity.session or "cli",
            subject_token=identity.subject_token,
            approve=approve,
        )

    def warnings(self) -> list[Problem]:
        """Return the warnings of the config, such as policy entries that match no tool."""
        return warnings(self.config, self.catalog)

    def note_warnings(self, terminal: Terminal) -> None:
        """Print the warnings that loading the config gave."""
        for warning in self.config.open_files:
            terminal.note(f"warning: {warning.message}")
        for warning in self.config.warnings:
            terminal.note(f"warning: {warning.where}: {warning.path}: {warning.message}")

    def check_profile(self, name: str | None) -> None:
        """Refuse an unknown profile, with suggestions."""
        if name in self.config.refused.profiles:
            text = f"The profile {name!r} is left out, because it needs a variable that is not set."
            raise CommandError(text, kind="unknown_profile")
        if name is not None:
            try:
                self.catalog.registry.profile(name)
            except DefinitionError as error:
                raise CommandError(str(error), kind="unknown_profile") from None

    def clean(self, value: JSONValue, ctx: ToolContext) -> JSONValue:
        """Return the output without the secrets of the config and the context."""
        redactor = self.catalog.executor.redactor(ctx)
        return value if redactor is None else redactor.value(value)


def load(options: Options, *, strict: bool = False, only_reads: bool = False) -> Project:
    """Find and load the config. With `strict`, a config that others may write is refused before any of it runs.

    For a command that `only_reads`, declarations with unset variables are left out and reported.

    Raises:
        CommandError: there is no config file, or no such profile in it.
        DefinitionError: it is invalid; with all problems.
    """
    path = find_config(options.config, start=Path.cwd())
    # Output of the user's modules during their import must not get into our answer.
    with redirect_stdout(sys.stderr):
        # Until it is loaded, every variable that it names may be a secret.
        options.terminal.secrets = partial(_secrets_named_in, path)
        catalog, config = load_catalog(path, env=os.environ, strict=strict, leave_out=only_reads)
    options.terminal.secrets = lambda: catalog.secrets
    for text in left_out(config):
        options.terminal.note(f"Left out: {text}")
    project = Project(catalog=catalog, config=config)
    # Checked for every command, even those that ignore the profile: a wrong name is a mistake.
    project.check_profile(options.chosen_profile)
    return project


def left_out(config: Config) -> list[str]:
    """Return a line for each declaration that is left out because a variable is not set."""
    return [str(problem) for problem in config.left_out]


def _secrets_named_in(path: Path) -> Iterator[Secret]:
    """Yield the values of the variables that the files of a config name."""
    for name in named_variables(path):
        if value := os.environ.get(name):
            yield Secret(value)


@asynccontextmanager
async def opened(
    options: Options,
    *,
    tool: str | None = None,
    approve: Approve | None = None,
    lists_only: bool = False,
    only_reads: bool = False,
) -> AsyncGenerator[tuple[Project, View]]:
    """Load the config, start its sources, and yield the view of the requested person and profile.

    Only the sources that the command depends on are started: for one `tool`, or for a whole list. With `lists_only`,
    definitions that the lock has pinned are used without starting their server; for `only_reads` see `load`. Without a
    profile the view has all groups: a person who has the config file may see its contents.

    Raises:
        CommandError: there is no config file, or no such profile.
        DefinitionError: the config is invalid.
    """
    project = load(options, only_reads=only_reads)
    catalog = project.catalog
    # Tools and predicates may print too.
    with redirect_stdout(sys.stderr):
        try:
            await start_needed(
                catalog, options.terminal, tool=tool, profile=options.chosen_profile, lists_only=lists_only
            )
            ctx = project.context(options.identity, approve=approve)
            yield project, catalog.view(ctx, profile=options.chosen_profile)
        finally:
            await catalog.close(grace_s=CLI_STOP_GRACE_S)
