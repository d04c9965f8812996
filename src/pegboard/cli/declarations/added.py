"""Added: interpret the words of `pegboard add`, and make an entry of them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pegboard.cli.command_error import CommandError
from pegboard.cli.declarations.clear_secrets import without_secrets
from pegboard.cli.declarations.command_words import (
    is_command,
    leading_variables,
    name_of_command,
    server_entry,
    split_words,
)
from pegboard.cli.declarations.derived_names import entry_name, name_of_address
from pegboard.cli.declarations.documents import read_document
from pegboard.cli.declarations.proposal import EntryWriter, Export, Proposal, literal, relative
from pegboard.cli.declarations.registry_entry import is_registry_entry, registry_proposal
from pegboard.cli.declarations.service_presets import PRESETS, ServicePreset
from pegboard.core.names import check_namespace
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSON, JSONValue, is_object
from pegboard.model.record import CarriesCredentials

_ADDRESS = " Write the whole of it, such as https://api.example.com/mcp."
_FORMS = (
    "Known are: the command of an MCP server (`npx -y PACKAGE`, `uvx PACKAGE`, `docker run -i --rm IMAGE`, any "
    "program), its address (https://…), an OpenAPI document (a file or its address), a server.json of the MCP "
    f"registry, and the services {', '.join(PRESETS)}."
)
_FILLING = frozenset({"api", "the", "rest", "http", "openapi", "specification", "spec"})
_SUFFIXES = frozenset({".json", ".yaml", ".yml"})
_DOCUMENT = re.compile(r"(?:\.json|\.ya?ml|openapi|swagger|api-docs)(?:$|[/?])", re.IGNORECASE)


class AddedWords(CarriesCredentials, frozen=True, kw_only=True):
    """The words and options of the command line. `folder` is the config's, `here` where the command runs."""

    what: tuple[str, ...]
    name: str | None
    env: tuple[str, ...]
    headers: tuple[str, ...]
    base_url: str | None
    kind: Literal["mcp", "openapi"] | None
    only: tuple[str, ...]
    skip: tuple[str, ...]
    folder: Path
    here: Path


def proposal_of(words: AddedWords) -> Proposal:
    """Return the entry for the words.

    Raises:
        CommandError: they have no known form, or contradict each other.
    """
    if not words.what:
        raise CommandError(f"Name what to add. {_FORMS}")
    if words.name is not None:
        try:
            check_namespace(words.name)
        except DefinitionError as error:
            raise CommandError(str(error)) from None
    [first, *rest] = words.what
    if not rest and (preset := PRESETS.get(first.lower())) is not None:
        return _of_preset(words, preset)
    if not rest and re.match(r"https?://", first, re.IGNORECASE):
        return _of_address(words, first)
    path = Path(first).expanduser()
    if (
        not rest
        and not re.search(r"\s", first)
        and _is_file(path)
        and (path.suffix.lower() in _SUFFIXES or (not path.suffix and not os.access(path, os.X_OK)))
    ):
        return _of_file(words, path)
    variables, command = leading_variables(split_words(words.what))
    is_document = path.suffix.lower() in _SUFFIXES
    if not command or is_document or not (is_command(command) or _is_program(command[0])):
        near = " There is no such file." if is_document else ""
        raise CommandError(f"{' '.join(words.what)[:200]!r} cannot be added.{near} {_FORMS}", kind="unknown_form")
    return _of_command(words, command, variables)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False  # too long to be one


def _is_program(word: str) -> bool:
    """Tell whether a single word is an installed program."""
    folders = [""] if os.sep in word else os.environ.get("PATH", "").split(os.pathsep)
    return any(_is_file(Path(folder) / word) and os.access(Path(folder) / word, os.X_OK) for folder in folders)


# ---- a command


def _of_command(words: AddedWords, command: list[str], variables: Mapping[str, str]) -> Proposal:
    _refuse(words, "a command", headers=True, base_url=True, openapi=True)
    name = words.name or name_of_command(command)
    writer = EntryWriter(label=name, file="")
    mcp = server_entry(
        command, {**variables, **_pairs(words.env)}, writer, at="args", cwd=words.here, folder=words.folder
    )
    return writer.proposal(_mcp_entry(words, name, mcp))


def _mcp_entry(words: AddedWords, name: str, mcp: JSON) -> JSON:
    chosen: JSON = {}
    if words.only:
        chosen["only"] = list(words.only)
    if words.skip:
        chosen["skip"] = list(words.skip)
    return {"name": name, "type": "mcp", "mcp": {**mcp, **({"tools": chosen} if chosen else {})}}


def _pairs(pairs: tuple[str, ...]) -> dict[str, str]:
    env: dict[str, str] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not re.fullmatch(r"[A-Za-z_]\w*", key):
            raise CommandError(f"--env {key!r}: write --env NAME=VALUE.")
        env[key] = value
    return env


# ---- a service where every person has an account


def _of_preset(words: AddedWords, preset: ServicePreset) -> Proposal:
    _refuse(words, "a service", headers=True, base_url=True, openapi=True, env=True)
    name = words.name or preset.name
    auth: JSON = {"mode": "user"}
    exports = [Export(variable="CONNECTIONS_KEY", found_at="a random text of at least 32 characters")]
    if preset.client == "by_hand":
        prefix = preset.name.upper()
        auth |= {"issuer": preset.issuer} if preset.issuer else {}
        auth |= {"client_id": f"${{{prefix}_CLIENT_ID}}", "client_secret": f"${{{prefix}_CLIENT_SECRET}}"}
        asked = [*re.findall(r"\$\{(\w+)\}", preset.issuer), f"{prefix}_CLIENT_ID", f"{prefix}_CLIENT_SECRET"]
        exports += [
            Export(variable=each, found_at=f"of the client that you register, see {preset.page}") for each in asked
        ]
    if preset.scopes:
        auth["scopes"] = list(preset.scopes)
    auth |= preset.auth
    entry = _mcp_entry(words, name, {"transport": "http", "url": preset.url})
    notes = [f"{preset.title}, as {preset.page} says on {preset.read_on}; not tried by us"]
    return Proposal(
        tools=({**entry, "auth": auth},),
        sections={"connections": {"key": "${CONNECTIONS_KEY}"}},
        exports=tuple(exports),
        notes=(*notes, preset.note) if preset.note else tuple(notes),
    )


# ---- an address


def _of_address(words: AddedWords, url: str) -> Proposal:
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname)
    except ValueError as error:
        raise CommandError(f"{url!r} is not a valid address: {error}.{_ADDRESS}") from None
    if not has_host or re.search(r"[\s\x00-\x1f]", url):
        raise CommandError(f"{url!r} is not a valid address.{_ADDRESS}")
    if parts.username is not None or parts.password is not None:
        raise CommandError("The address has a login in it; give it as --header 'Authorization: Basic …' instead.")
    is_api = words.kind == "openapi" or (words.kind is None and _DOCUMENT.search(parts.path) is not None)
    name = words.name or name_of_address(url)
    writer = EntryWriter(label=name, file="")

    def conceal(key: str, value: str) -> str:
        return writer.concealed(key, value, at="the address")

    address = without_secrets(url, conceal, literal, name="address")
    if is_api:
        return writer.proposal(_api_entry(words, name, address, writer))
    _refuse(words, "a server that is reached by an address", base_url=True, env=True)
    mcp: JSON = {"transport": "sse" if parts.path.rstrip("/").endswith("/sse") else "http", "url": address}
    headers = _headers(words, writer)
    return writer.proposal(_mcp_entry(words, name, {**mcp, **({"headers": headers} if headers else {})}))


def _headers(words: AddedWords, writer: EntryWriter) -> JSON:
    headers: JSON = {}
    for header in words.headers:
        name, separator, value = (part.strip() for part in header.partition(":"))
        if not separator or not value or not re.fullmatch(r"[A-Za-z0-9-]+", name) or "\n" in value or "\r" in value:
            raise CommandError("--header: write --header 'Name: value'.")
        scheme = re.match(r"(?:Bearer|Basic|Token)\s+", value, re.IGNORECASE)
        lead = scheme[0] if scheme else ""
        variable = "token" if scheme else name
        headers[name] = lead + writer.concealed(variable, value[len(lead) :], at=f"--header {name}")
    return headers


# ---- a file


def _of_file(words: AddedWords, path: Path) -> Proposal:
    document = read_document(path)
    if is_object(document) and ("openapi" in document or "swagger" in document):
        _refuse(words, "an API", env=True, mcp=True)
        name = words.name or entry_name(_title(document) or path.name)
        writer = EntryWriter(label=name, file="")
        entry = _api_entry(words, name, literal(relative(path, words.folder)), writer)
        if words.base_url is None and not _names_server(document):
            base_path = next(iter(re.findall(r"\A/[\w./-]{1,80}\Z", str(document.get("basePath")))), "")
            raise CommandError(f"{str(path)!r} does not name the URL of the API; add --base-url https://…{base_path}.")
        if not words.headers and (asked := _credentials_of(document)):
            writer.left_out.append(f"credentials: the API asks for {asked}; give them with --header 'Name: value'")
        return writer.proposal(entry)
    if is_registry_entry(document):
        _refuse(words, "an entry of the registry", headers=True, base_url=True, openapi=True, env=True)
        proposal = registry_proposal(document, file=path.name, name=words.name, folder=words.folder)
        [entry] = proposal.tools
        chosen = _mcp_entry(words, entry["name"], entry["mcp"])
        return Proposal(tools=(chosen,), exports=proposal.exports, left_out=proposal.left_out)
    if (
        is_object(document)
        and {"mcpServers", "servers", "context_servers", "mcp_servers", "registry"} & document.keys()
    ):
        raise CommandError(
            f"{str(path)!r} has servers of another program; take them all with `pegboard import {path}`."
        )
    raise CommandError(f"{str(path)!r} cannot be added: its format is unknown. {_FORMS}", kind="unknown_form")


def _title(document: JSON) -> str:
    info = document.get("info")
    title = info.get("title") if is_object(info) else None
    words = re.findall(r"[A-Za-z0-9]+", title) if isinstance(title, str) else []
    plain = [word for word in words if word.lower() not in _FILLING]
    return "_".join(plain[:3]).lower()[:32]


def _names_server(document: JSON) -> bool:
    """Tell whether a description names the server of its API."""
    return "servers" in document or bool(document.get("host"))


def _credentials_of(document: JSON) -> str:
    components = document.get("components")
    schemes = components.get("securitySchemes") if is_object(components) else document.get("securityDefinitions")
    return ", ".join(str(name) for name in schemes) if is_object(schemes) else ""


def _api_entry(words: AddedWords, name: str, spec: str, writer: EntryWriter) -> JSON:
    _refuse(words, "an API", env=True)
    api: JSON = {"spec": spec}
    if words.only:
        api["operations"] = list(words.only)
    if words.skip:
        raise CommandError("--skip does not go with an API: name the operations that are wanted with --only.")
    if words.base_url is not None:
        api["base_url"] = literal(words.base_url)
    headers = _headers(words, writer)
    bearer = headers.get("Authorization", "").removeprefix("Bearer ")
    if len(headers) == 1 and bearer.startswith("${") and headers["Authorization"].startswith("Bearer "):
        api["auth"] = {"bearer": bearer}
    elif headers:
        api["auth"] = {"headers": headers}
    return {"name": name, "type": "openapi", "openapi": api}


def _refuse(
    words: AddedWords,
    what: str,
    *,
    headers: bool = False,
    base_url: bool = False,
    env: bool = False,
    openapi: bool = False,
    mcp: bool = False,
) -> None:
    """Refuse options that do not apply to this kind of entry."""
    options: dict[str, JSONValue] = {
        "--header": headers and words.headers,
        "--base-url": base_url and words.base_url,
        "--env": env and words.env,
        "--type openapi": openapi and words.kind == "openapi",
        "--type mcp": mcp and words.kind == "mcp",
    }
    wrong = [option for option, is_given in options.items() if is_given]
    if wrong:
        raise CommandError(f"{wrong[0]} does not go with {what}.")
