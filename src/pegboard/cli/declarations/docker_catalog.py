"""Docker catalog: convert the servers of a catalog of Docker's MCP gateway to entries that start their containers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pegboard.cli.declarations.clear_secrets import variable_for
from pegboard.cli.declarations.derived_names import free_name, group_stem, namespace
from pegboard.cli.declarations.documents import FOREIGN_ENTRIES
from pegboard.cli.declarations.proposal import EntryWriter, Proposal, as_text, joined, literal
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object

_TEMPLATE = re.compile(r"\{\{\s*([\w.-]+)((?:\s*\|\s*\w+)*)\s*\}\}")
_IMAGE = re.compile(r"[a-z0-9][\w./:@-]*")
_TRANSPORTS = {"streamable-http": "http", "http": "http", "sse": "sse"}
_SAID_ELSEWHERE = frozenset({
    "description", "title", "type", "dateAdded", "image", "ref", "readme", "toolsUrl", "source", "upstream", "icon",
    "tools", "prompts", "resources", "metadata", "secrets", "env", "command", "volumes", "remote", "longLived", "name",
    "user", "disableNetwork", "about", "meta", "dynamic", "run",
})  # fmt: skip
_WHAT_TO_DO = {
    "allowHosts": "the container reaches the whole network; bound it with a network of Docker's",
    "oauth": "signing in is done from Python: docs/howto/mcp-servers.md",
    "config": "what it asks for is a variable here",
}


def is_docker_catalog(document: JSONValue) -> bool:
    """Tell whether a document is a Docker catalog, or one server of its registry."""
    if not is_object(document):
        return False
    registry = document.get("registry")
    if is_object(registry):
        return all(is_object(server) for server in registry.values())
    return document.get("type") in ("server", "remote", "poci") and "name" in document


def docker_proposal(document: JSON, *, file: str, taken: set[str]) -> Proposal:
    """Return an entry for each server; those that cannot be converted are listed in `left_out`."""
    registry: JSONValue = document.get("registry")
    servers: Mapping[str, JSON] = registry if is_object(registry) else {str(document["name"]): document}
    proposals: list[Proposal] = []
    for place, (name, server) in enumerate(servers.items()):
        if place >= FOREIGN_ENTRIES:
            text = f"registry.{name} and all after it: at most {FOREIGN_ENTRIES} are taken at once"
            proposals.append(Proposal(left_out=(text,)))
            break
        proposals.append(_server(str(name), server, file=file, taken=taken))
    return joined(proposals)


def _server(name: str, server: JSON, *, file: str, taken: set[str]) -> Proposal:
    writer = EntryWriter(label=namespace(name), file=file)
    at = f"registry.{name}"
    remote, image = server.get("remote"), server.get("image")
    if is_object(remote) and isinstance(remote.get("url"), str):
        mcp = _remote(remote, writer, at=at)
    elif server.get("type") == "poci" or not (isinstance(image, str) and _IMAGE.fullmatch(image)):
        reason = "each of its tools is a separate container" if server.get("type") == "poci" else "it names no image"
        return Proposal(left_out=(f"{at}: {reason}, which no server of MCP is",))
    else:
        mcp = _container(server, image, writer, at=at)
    for key in server:
        if key not in _SAID_ELSEWHERE:
            writer.left_out.append(f"{at}.{key}: {_WHAT_TO_DO.get(key, 'it is unknown here')}")
    called = free_name(namespace(name), taken)
    if called != name:
        writer.notes.append(f"{at} is called {called!r} here.")
    return writer.proposal({"name": called, "type": "mcp", "mcp": mcp, "groups": [group_stem(called)]})


def _container(server: JSON, image: str, writer: EntryWriter, *, at: str) -> JSON:
    args = ["run", "-i", "--rm", "--init"]
    if server.get("disableNetwork") is True:
        args += ["--network", "none"]
    if isinstance(server.get("user"), str):
        args += ["--user", _filled(server["user"], writer, at=f"{at}.user")]
    env: JSON = {}
    for secret in _objects(server.get("secrets")):
        variable = secret.get("env")
        if isinstance(variable, str) and re.fullmatch(r"[A-Za-z_]\w*", variable):
            env[variable] = writer.variable(variable, at=f"for {at}")
    for field in _objects(server.get("env")):
        variable, value = field.get("name"), field.get("value")
        if isinstance(variable, str) and re.fullmatch(r"[A-Za-z_]\w*", variable):
            text = as_text(value)
            is_template = _TEMPLATE.search(text) is not None
            here = f"{at}.env.{variable}"
            env[variable] = _filled(text, writer, at=here) if is_template else writer.value(variable, text, at=here)
    args += [word for variable in env for word in ("-e", variable)]
    for volume in _texts(server.get("volumes")):
        if "|volume" in volume.replace(" ", ""):
            writer.left_out.append(
                f"{at}.volumes: {volume!r} is for paths that the gateway asks for; add `-v` for each"
            )
        else:
            args += ["-v", _filled(volume, writer, at=f"{at}.volumes")]
    args.append(literal(image))
    args += [_filled(word, writer, at=f"{at}.command") for word in _texts(server.get("command"))]
    return {"transport": "stdio", "command": "docker", "args": args, **({"env": env} if env else {})}


def _remote(remote: JSON, writer: EntryWriter, *, at: str) -> JSON:
    kind = str(remote.get("transport_type", remote.get("transport", "streamable-http")))
    url = _filled(remote["url"], writer, at=f"{at}.remote.url")
    entry: JSON = {"transport": _TRANSPORTS.get(kind, "http"), "url": url}
    headers = remote.get("headers")
    filled = {
        str(name): _filled(value, writer, at=f"{at}.remote.headers.{name}", name=str(name))
        for name, value in (headers.items() if is_object(headers) else ())
        if isinstance(value, str)
    }
    return {**entry, "headers": filled} if filled else entry


def _filled(text: str, writer: EntryWriter, *, at: str, name: str = "") -> str:
    """Return a text with `{{templates}}` and `${VARIABLES}` as our variables; a plain-text secret becomes one too."""
    pieces: list[str] = []
    end = 0
    for match in re.finditer(rf"{_TEMPLATE.pattern}|\$\{{([A-Za-z_]\w*)\}}", text):
        pieces.append(literal(text[end : match.start()]))
        variable = match[3] or variable_for(match[1].rpartition(".")[2], label=writer.label)
        pieces.append(writer.variable(variable, at=f"for {at}"))
        end = match.end()
    if not pieces and name:
        return writer.value(name, text, at=at)
    return "".join([*pieces, literal(text[end:])])


def _objects(value: JSONValue) -> list[JSON]:
    return [item for item in value if is_object(item)] if is_list(value) else []


def _texts(value: JSONValue) -> list[str]:
    return [item for item in value if isinstance(item, str)] if is_list(value) else []
