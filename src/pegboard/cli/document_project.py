"""Document project: the config of a command and its document store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from pegboard.cli.command_error import CommandError
from pegboard.cli.options import Options
from pegboard.cli.project import find_config
from pegboard.config import Config, load
from pegboard.config.workspace import store_of, workspace_of
from pegboard.config.yaml.problems import Report
from pegboard.lazy import LazyModule
from pegboard.model.error import DefinitionError

if TYPE_CHECKING:
    from pegboard.workspace import document_workspace
    from pegboard.workspace.store.document_store import SqlDocumentStore
else:
    document_workspace = LazyModule("pegboard.workspace.document_workspace")


class DocumentProject(Struct, frozen=True, kw_only=True):
    """A loaded config and its document store. The user's Python modules are not imported."""

    config: Config
    store: SqlDocumentStore

    def workspace(self) -> document_workspace.Workspace:
        """Return the ingester of the config."""
        return workspace_of(self.config, self.store, env=os.environ)


def document_project(options: Options) -> DocumentProject:
    """Find and read the config, and open its document store.

    Raises:
        CommandError: there is no config, or none with `workspace:`.
        DefinitionError: it is invalid; with all problems.
    """
    path = find_config(options.config, start=Path.cwd())
    config = load(path, env=os.environ)
    options.terminal.secrets = lambda: tuple(config.secrets.values())
    report = Report()
    store = store_of(config, report)
    if report:
        raise DefinitionError(report.sorted(config.files, config.secrets))
    if store is None:
        text = f"{str(path)!r} has no documents. Add a store: workspace: {{store: 'sqlite:./documents.db'}}."
        raise CommandError(text, kind="no_workspace")
    return DocumentProject(config=config, store=store)
