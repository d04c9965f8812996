"""Config entry: add entries to a config, validate the result, and write the file."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from sys import stderr

from msgspec import Struct

from pegboard.catalog import Catalog
from pegboard.cli.command_error import CommandError
from pegboard.cli.declarations.command_words import with_way_out
from pegboard.cli.declarations.proposal import Export, Proposal
from pegboard.cli.operator_file import read_operator_file, write_operator_file
from pegboard.cli.options import Options
from pegboard.cli.project import CONFIG_NAME, find_config
from pegboard.config import Config, item_count, load_catalog, with_items
from pegboard.config.load import read
from pegboard.core.names import fold
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSON
from pegboard.model.record import replace
from pegboard.model.secret import Secret

_NOT_SET_YET = "not-set-yet" * 3  # as long as keys must be


class ConfigFile(Struct, frozen=True, kw_only=True):
    """The current config file; `text` is empty if there is none yet."""

    path: Path
    text: str
    taken: frozenset[str]
    included: frozenset[str] = frozenset()
    """The groups that its profiles include."""
    groups: frozenset[str] = frozenset()
    """The groups under its `groups:`."""
    globs: tuple[str, ...] = ()
    """The globs under its `files:`."""
    tool_count: int = 0
    """The number of items in its `tools:`."""
    sections: frozenset[str] = frozenset()
    """The sections it already has, of those that a proposal may add."""
    env: tuple[str, ...] | None = None
    """Globs over the variables that it may name; `None` if it may name all."""

    @property
    def folder(self) -> Path:
        return self.path.absolute().parent

    def with_way_out(self, proposal: Proposal) -> Proposal:
        """Return a proposal whose programs get the proxy variables for downloads, if this config may name them."""
        present = {
            name
            for name, value in os.environ.items()
            if value and (self.env is None or any(fnmatchcase(name, glob) for glob in self.env))
        }
        return replace(proposal, tools=tuple(with_way_out(tool, present) for tool in proposal.tools))

    def with_proposal(self, proposal: Proposal) -> str:
        """Return the text of the config with all entries of a proposal.

        Raises:
            DefinitionError: it cannot be changed without touching the rest.
        """
        text = self.text
        if not text:
            text = "# `pegboard schema --editor --write` has your editor complete and check this file.\n"
        sections: Mapping[str, Sequence[str | JSON]] = {
            "python": proposal.python,
            "files": [glob for glob in proposal.globs if glob not in self.globs],
            "tools": proposal.tools,
        }
        for section, items in sections.items():
            if items:
                text = with_items(text, section, items)
        for section, value in proposal.sections.items():
            if section not in self.sections:
                lines = "".join(f"  {key}: {scalar}\n" for key, scalar in value.items())
                text = f"{text.rstrip()}\n\n{section}:\n{lines}"
        return text


def open_config(options: Options) -> ConfigFile:
    """Return the config that the options name; a new `pegboard.yaml` if none is named and none exists.

    Raises:
        CommandError: the named one does not exist, or cannot be read.
    """
    try:
        path = find_config(options.config, start=Path.cwd())
    except CommandError as error:
        if options.config is not None or "no pegboard.yaml" not in str(error):
            raise
        return ConfigFile(path=Path(CONFIG_NAME), text="", taken=frozenset())
    text = read_operator_file(path)
    with redirect_stdout(stderr):
        # Its faults are reported when it is validated with the new entries.
        config, _ = read(path, env=os.environ)
    names = chain.from_iterable((tool.value.called, tool.value.name) for tool in config.tools)
    included = frozenset(group for form in config.profiles.values() for group in form.value.include or ())
    return ConfigFile(
        path=path,
        text=text,
        taken=frozenset(map(fold, names)),
        included=included,
        groups=frozenset(config.groups),
        globs=config.globs,
        tool_count=item_count(text, "tools"),
        sections=frozenset({"connections"} if config.connections is not None else ()),
        env=config.env,
    )


@contextmanager
def trial(
    file: ConfigFile,
    text: str,
    *,
    exports: Sequence[Export],
    options: Options,
    is_offline: bool = False,
    files: Mapping[str, str] | None = None,
    placeholders: Mapping[str, str] | None = None,
) -> Generator[tuple[Catalog, Config]]:
    """Yield the catalog of a config with the new entries; unset variables get the values in `exports`.

    `placeholders` are values for variables that nobody has set yet.

    Raises:
        CommandError: a required variable is not set and it is not offline, or the entries are invalid.
        DefinitionError: the config was invalid before.
    """
    known = {export.variable: export.value.reveal() for export in exports if export.value is not None}
    env = {**known, **os.environ}
    missing = [export for export in exports if not env.get(export.variable)]
    if is_offline:
        env.update(dict.fromkeys((export.variable for export in missing), _NOT_SET_YET))
        env.update(placeholders or {})
    elif missing:
        lines = "\n".join(f"  {export.line}" for export in missing)
        raise CommandError(
            f"{'A variable is' if len(missing) == 1 else 'Variables are'} not set:\n{lines}\n"
            "Set what is missing, give it with --env NAME=VALUE, or write without connecting: --offline.",
            kind="variable_missing",
        )
    options.terminal.secrets = lambda: [Secret(value) for value in known.values()]
    # In the config's folder, since paths in it are relative.
    path = file.path.with_name(f".{file.path.name}.{os.getpid()}.trial")
    beside = {file.folder / name: content for name, content in (files or {}).items()}
    present = [str(each) for each in beside if each.exists()]
    if present:
        raise CommandError(f"{', '.join(map(repr, present))} exists already; nothing was written.", kind="exists")
    folders = {each.parent for each in beside if not each.parent.exists()}
    try:
        for each, content in beside.items():
            write_operator_file(each, content)
        path.touch(mode=0o600, exist_ok=False)
        path.write_text(text, encoding="utf-8")  # raw: next to the operator's own file, during the trial only
        with redirect_stdout(stderr):
            catalog, config = load_catalog(path, env=env)
    except OSError as error:
        raise CommandError(f"{str(path)!r} cannot be written: {error.strerror}.", kind="not_written") from error
    except DefinitionError as error:
        _check_as_it_was(file, env)
        reasons = "; ".join(": ".join(filter(None, (problem.path, problem.message))) for problem in error.problems)
        raise CommandError(
            f"This cannot be added: {reasons}. Nothing was written.", kind="config_invalid", problems=error.problems
        ) from None
    finally:
        for each in (path, *beside):
            each.unlink(missing_ok=True)
        for folder in folders:
            with suppress(OSError):
                folder.rmdir()
    options.terminal.secrets = lambda: [*catalog.secrets, *(Secret(value) for value in known.values())]
    yield catalog, config


def _check_as_it_was(file: ConfigFile, env: Mapping[str, str]) -> None:
    """Raise the faults that a config had before anything was added."""
    if file.text:
        with redirect_stdout(stderr):
            load_catalog(file.path, env=env)


def write_config(file: ConfigFile, text: str, files: Mapping[str, str]) -> None:
    """Write the config, after the files next to it; no existing file is overwritten except the config.

    Raises:
        CommandError: a file exists, or cannot be written, or the config has changed meanwhile.
    """
    present = [name for name in files if (file.folder / name).exists()]
    if present:
        raise CommandError(
            f"{', '.join(map(repr, present))} exist{'s' if len(present) == 1 else ''} already; nothing was written.",
            kind="exists",
        )
    for name, content in files.items():
        write_operator_file(file.folder / name, content)
    write_operator_file(file.path, text, expected=file.text)
