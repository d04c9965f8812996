"""Imported: interpret the words of `pegboard import`, and make entries of them."""

from __future__ import annotations

import re
from pathlib import Path

from pegboard.cli.command_error import CommandError
from pegboard.cli.declarations.astromesh_folder import astromesh_proposal, is_agent
from pegboard.cli.declarations.client_configs import client_proposal, is_client_config
from pegboard.cli.declarations.docker_catalog import docker_proposal, is_docker_catalog
from pegboard.cli.declarations.documents import read_document
from pegboard.cli.declarations.fastmcp_project import (
    fastmcp_json_proposal,
    fastmcp_proposal,
    is_fastmcp_project,
    python_file,
)
from pegboard.cli.declarations.langchain_module import is_module_reference, langchain_proposal
from pegboard.cli.declarations.proposal import Proposal
from pegboard.cli.declarations.registry_entry import is_registry_entry
from pegboard.cli.mcp_clients import CLIENTS
from pegboard.core.names import nearest

_FORMS = (
    "Known are: the configuration of an MCP client (its name, or a file such as mcp.json), a catalog of Docker's MCP "
    "gateway, a FastMCP server (file.py:object, fastmcp.json), LangChain tools (module:object), "
    "a folder or file of Astromesh."
)
# The subfolder where some clients keep the file of a project.
_OF_EDITORS = frozenset({".vscode", ".cursor", ".gemini", ".codex", ".zed"})


def imported_proposal(word: str, *, folder: Path, taken: set[str]) -> Proposal:
    """Return entries for everything that a word names.

    Args:
        word: a client, a file, a folder or a Python object.
        folder: the folder of the config.
        taken: the names in use; names of the new entries are added.

    Raises:
        CommandError: it has no known form.
    """
    path = CLIENTS[word].path(Path()) if word in CLIENTS else Path(word).expanduser()
    server = python_file(word)
    if server is not None:
        if not server[0].is_file():
            raise CommandError(f"There is no file {str(server[0])!r}.", kind="unreadable")
        return fastmcp_proposal(*server, folder=folder, taken=taken)
    if path.is_dir():
        proposal = astromesh_proposal(path, folder=folder)
        if not proposal.files and not proposal.left_out:
            raise CommandError(f"The folder {str(path)!r} has no agent of Astromesh. {_FORMS}", kind="unknown_form")
        return proposal
    if not path.exists() and is_module_reference(word):
        return langchain_proposal(word, folder=folder)
    if not path.exists():
        near = nearest(word, CLIENTS, label="Clients") if re.fullmatch(r"[\w-]+", word) else ""
        raise CommandError(f"There is no file {str(path)!r}.{near} {_FORMS}", kind="unreadable")
    document = read_document(path)
    if is_agent(document):
        return astromesh_proposal(path, folder=folder)
    if is_fastmcp_project(document):
        return fastmcp_json_proposal(document, path, folder=folder, taken=taken)
    if is_client_config(document):
        beside = path.absolute().parent
        beside = beside.parent if beside.name in _OF_EDITORS else beside
        return client_proposal(document, file=str(path), beside=beside, folder=folder, taken=taken)
    if is_docker_catalog(document):
        return docker_proposal(document, file=str(path), taken=taken)
    if is_registry_entry(document) or (isinstance(document, dict) and {"openapi", "swagger"} & document.keys()):  # pyright: ignore[reportUnknownMemberType] - JSON
        raise CommandError(f"{str(path)!r} is one server or API; `pegboard add {word}` takes it.")
    raise CommandError(f"{str(path)!r} has nothing that can be imported. {_FORMS}", kind="unknown_form")
