"""Registry entry: convert a `server.json` of the MCP registry to an entry of a config."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pegboard.cli.command_error import CommandError
from pegboard.cli.declarations.clear_secrets import names_secret, variable_for
from pegboard.cli.declarations.command_words import server_entry
from pegboard.cli.declarations.derived_names import entry_name
from pegboard.cli.declarations.proposal import EntryWriter, Proposal, literal
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object

_VARIABLE = re.compile(r"\{([A-Za-z_][\w.-]*)\}")
_TRANSPORTS = {"streamable-http": "http", "http": "http", "sse": "sse"}
# How to run a package of each registry, if the entry gives no hint.
_RUNTIMES = {"npm": "npx", "pypi": "uvx", "oci": "docker", "nuget": "dnx"}


def is_registry_entry(value: JSONValue) -> bool:
    """Tell whether a document is the entry of a server, or the registry's response for one."""
    server = _server(value)
    return server is not None and ("packages" in server or "remotes" in server)


def registry_proposal(value: JSONValue, *, file: str, name: str | None, folder: Path) -> Proposal:
    """Return the entry, with the first transport that can be used from here.

    Raises:
        CommandError: there is none.
    """
    server = _server(value) or {}
    called = name or entry_name(str(server.get("name", "server")))
    reasons: list[str] = []
    for place, package in enumerate(_objects(server.get("packages"))):
        writer = EntryWriter(label=called, file=file)
        fault = _package_fault(package)
        if fault is None:
            mcp = _package(package, writer, at=f"packages[{place}]", folder=folder)
            return writer.proposal(_entry(called, server, mcp))
        reasons.append(f"packages[{place}]: {fault}")
    for place, remote in enumerate(_objects(server.get("remotes"))):
        writer = EntryWriter(label=called, file=file)
        transport = _TRANSPORTS.get(str(remote.get("type", remote.get("transport_type"))))
        if transport is not None and isinstance(remote.get("url"), str):
            mcp = _remote(remote, transport, writer, at=f"remotes[{place}]")
            return writer.proposal(_entry(called, server, mcp))
        reasons.append(f"remotes[{place}]: {remote.get('type')!r} is not a known transport")
    text = f"{'; '.join(reasons)}. " if reasons else "it has no package and no remote. "
    raise CommandError(
        f"The entry of {str(server.get('name', called))!r} cannot be used: {text}"
        "Add the command that starts it, or its address: `pegboard add COMMAND …`.",
        kind="unknown_form",
    )


def _server(value: JSONValue) -> JSON | None:
    if not is_object(value):
        return None
    inner = value.get("server")
    if is_object(inner):
        return inner
    servers = value.get("servers")
    if is_list(servers) and len(servers) == 1:
        return _server(servers[0])
    return value


def _objects(value: JSONValue) -> list[JSON]:
    return [item for item in value if is_object(item)] if is_list(value) else []


def _entry(name: str, server: JSON, mcp: JSON) -> JSON:
    return {"name": name, "type": "mcp", "mcp": mcp}


def _package_fault(package: JSON) -> str | None:
    """Return why a package cannot be run from here."""
    kind = str(package.get("registryType", package.get("registry_type", package.get("registry_name"))))
    transport = package.get("transport")
    way = transport.get("type", "stdio") if is_object(transport) else transport or "stdio"
    if kind not in _RUNTIMES:
        return f"a package of {kind!r} is not run by a command; install it, and add its command"
    if way != "stdio":
        return f"it serves {way!r}: start it, and add its address"
    identifier, version = package.get("identifier", package.get("name")), package.get("version")
    if not isinstance(identifier, str) or re.match(r"-|$", identifier) or re.search(r"\s", identifier):
        return f"{identifier!r} is not a package name"
    if version is not None and (not isinstance(version, str) or re.search(r"\s", version)):
        return f"{version!r} is not a version"
    hint = package.get("runtimeHint", package.get("runtime_hint"))
    if hint is not None and hint not in {*_RUNTIMES.values(), "uv", "bunx", "pnpx", "pipx", "node", "python", "podman"}:
        return f"its runtime {hint!r} is unknown; add the command that starts it"
    return None


def _package(package: JSON, writer: EntryWriter, *, at: str, folder: Path) -> JSON:
    kind = str(package.get("registryType", package.get("registry_type", package.get("registry_name"))))
    identifier, version = str(package.get("identifier", package.get("name"))), package.get("version")
    runtime = package.get("runtimeHint", package.get("runtime_hint")) or _RUNTIMES[kind]
    before = list(_arguments(package.get("runtimeArguments", package.get("runtime_arguments")), writer, at=at))
    after = list(_arguments(package.get("packageArguments", package.get("package_arguments")), writer, at=at))
    whole = identifier if not version or version == "latest" else _versioned(kind, identifier, str(version))
    words = [str(runtime)]
    if runtime in ("docker", "podman"):
        words += ["run", "-i", "--rm"] if "run" not in before else []
    # A runtime argument that names the package replaces the usual one.
    is_named = any(
        word == identifier or word.startswith((f"{identifier}@", f"{identifier}=", f"{identifier}[")) for word in before
    )
    entry = server_entry(words, {}, writer, at=at, cwd=None, folder=folder)
    env: JSON = {}
    for place, variable in enumerate(
        _objects(package.get("environmentVariables", package.get("environment_variables")))
    ):
        name = variable.get("name")
        if isinstance(name, str) and re.fullmatch(r"[A-Za-z_]\w*", name):
            value = _input(variable, writer, name=name, at=f"{at}.environmentVariables[{place}]")
            if value is not None:
                env[name] = value
    passed = [word for name in env for word in ("-e", name)] if runtime in ("docker", "podman") else []
    args = [*entry.get("args", []), *passed, *before, *([] if is_named else [literal(whole)]), *after]
    return {**entry, "args": args, **({"env": env} if env else {})}


def _versioned(kind: str, identifier: str, version: str) -> str:
    if kind == "oci":
        return identifier if "@" in identifier or ":" in identifier.rpartition("/")[2] else f"{identifier}:{version}"
    return f"{identifier}@{version}"


def _arguments(values: JSONValue, writer: EntryWriter, *, at: str) -> Iterator[str]:
    """Yield the words of arguments, in the form of a config; optional ones without a value are left out."""
    for argument in _objects(values):
        hint = argument.get("valueHint", argument.get("value_hint"))
        name = str(argument.get("name") or hint or "argument")
        value = _input(argument, writer, name=name.lstrip("-"), at=at, is_flag=argument.get("type") == "named")
        if value is None:
            continue
        if argument.get("type") == "named" and isinstance(argument.get("name"), str):
            yield literal(argument["name"])
            if not value:
                continue
        if value:
            yield value


def _input(field: JSON, writer: EntryWriter, *, name: str, at: str, is_flag: bool = False) -> str | None:
    """Return a value for a config: the fixed one, or a variable; `None` if it is optional."""
    fixed = field.get("value")
    if isinstance(fixed, str):
        inner = field.get("variables")
        return _filled(fixed, inner if is_object(inner) else {}, writer, at=at)
    default = field.get("default")
    is_secret = field.get("isSecret", field.get("is_secret")) is True or names_secret(name)
    if default is not None and not is_secret:
        variable = variable_for(name, label=writer.label)
        text = str(default).lower() if isinstance(default, bool) else str(default)
        return literal(text) if re.search(r"[{}$]", text) else f"${{{variable}:-{text}}}"
    if field.get("isRequired", field.get("is_required")) is True or is_secret:
        note = field.get("description")
        return writer.variable(variable_for(name, label=writer.label), at=str(note)[:200] if note else f"for {at}")
    if is_flag and not {"description", "valueHint", "format", "choices"} & field.keys():
        return ""
    if is_flag:
        writer.left_out.append(
            f"{at}: the option {field.get('name')!r} is not needed; add it to `args:` if it is wanted"
        )
        return None
    writer.left_out.append(f"{at}: {name!r} is not needed; add it if it is wanted")
    return None


def _filled(text: str, variables: JSON, writer: EntryWriter, *, at: str) -> str:
    """Return a text with its `{name}` placeholders as variables."""
    pieces: list[str] = []
    end = 0
    for match in _VARIABLE.finditer(text):
        field = variables.get(match[1])
        required: JSON = {**(field if is_object(field) else {}), "isRequired": True}
        pieces += [literal(text[end : match.start()]), _input(required, writer, name=match[1], at=at) or ""]
        end = match.end()
    return "".join([*pieces, literal(text[end:])])


def _remote(remote: JSON, transport: str, writer: EntryWriter, *, at: str) -> JSON:
    inner = remote.get("variables")
    entry: JSON = {
        "transport": transport,
        "url": _filled(remote["url"], inner if is_object(inner) else {}, writer, at=f"{at}.url"),
    }
    headers: JSON = {}
    for header in _objects(remote.get("headers")):
        name = header.get("name")
        if isinstance(name, str):
            value = _input(header, writer, name=name, at=f"{at}.headers.{name}")
            if value is not None:
                headers[name] = value
    return {**entry, "headers": headers} if headers else entry
