"""MCP: the tools of an MCP server, under the name of the entry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from pegboard.config.build_context import BuildContext
from pegboard.config.config import LOCK_NAME, Declared
from pegboard.config.forms.source_auth_form import SourceAuthForm
from pegboard.config.forms.value_types import FilledText, Flag, Form, Maybe, Names, PositiveNumber, Text, ToolName
from pegboard.config.kinds.tool_form import ToolForm, guards_of_each_tool, keys_of_one_tool, overlaid
from pegboard.config.source_auth import SourceAuth, Upstream, source_auth
from pegboard.config.yaml.environment import concealed
from pegboard.config.yaml.tree import At
from pegboard.core.digests import digest
from pegboard.egress.limits import PATH_CHARS
from pegboard.lazy import LazyModule
from pegboard.model.call_intent import FilledName
from pegboard.model.error import DefinitionError, Problem
from pegboard.model.secret import Secret
from pegboard.model.tool import ToolSpec
from pegboard.platforms import platform
from pegboard.sources.mcp.lock_file import LockFile
from pegboard.sources.mcp.person_sessions import PersonSessions
from pegboard.sources.mcp.personal_source import PersonalMcpSource
from pegboard.sources.mcp.server_settings import ProtocolVersion, ServerSettings, SimpleConsent
from pegboard.sources.mcp.supervised_source import McpSource

if TYPE_CHECKING:
    from pegboard.connections import token_auth
else:
    token_auth = LazyModule("pegboard.connections.token_auth")

PROGRAM_ID_CHARS = 32

_OF_ONE_TRANSPORT = {
    "command": "stdio",
    "args": "stdio",
    "env": "stdio",
    "cwd": "stdio",
    "url": "http",
    "headers": "http",
}


def _text(value: object) -> object:
    if not isinstance(value, str):
        raise PydanticCustomError("text", "expected a text; put it in quotes")
    return value


# Values from the environment are Secrets; pydantic has no schema for them.
ConcealedText: TypeAlias = Annotated[
    Any, BeforeValidator(concealed), AfterValidator(_text), WithJsonSchema({"type": "string"})
]


class McpToolsForm(Form):
    """The tools of the server to use, with their names and groups."""

    only: Maybe[Names] = Field(None, description="Globs over the server's own names: only these tools.")
    skip: Names = Field((), description="Globs over the server's own names: never these tools.")
    rename: Mapping[FilledText, ToolName] = Field(
        default_factory=dict[str, str], description="New names for some tools: `name on the server: new name`."
    )
    groups: Mapping[FilledText, Names] = Field(
        default_factory=dict[str, tuple[str, ...]],
        description="Groups for the tools that match a glob; a tool gets the groups of all matching globs.",
    )
    consent: Mapping[FilledText, SimpleConsent] = Field(
        default_factory=dict[str, SimpleConsent],
        description="Whether a person must approve calls of the tools that match a glob; replaces the entry's "
        "`consent:`. If several globs match, the strictest applies.",
    )
    call_intent: Mapping[FilledText, tuple[FilledName, ...]] = Field(
        default_factory=dict[str, tuple[FilledName, ...]],
        description=(
            "The arguments that `useTools` fills in from its own argument `context`, for the tools that match a "
            "glob: `'*': [context]`."
        ),
    )


class ServerForm(Form):
    """An MCP server: its transport and how far it is trusted."""

    transport: Literal["stdio", "sse", "http"] = Field(description="The transport: stdio, http or sse.")
    command: Maybe[FilledText] = Field(None, description="The program to start (stdio), without a shell.")
    args: tuple[Text, ...] = Field((), description="The program's arguments (stdio).")
    env: Mapping[FilledText, ConcealedText] = Field(
        default_factory=dict[str, Any],
        description=(
            "Environment variables of the program in addition to PATH, HOME, LANG, TERM and PEGBOARD_PROGRAM_ID "
            "(stdio). If `${NAME:-}` is empty, the variable is not set."
        ),
    )
    cwd: Maybe[FilledText] = Field(
        None,
        description="The program's working directory (stdio): `.` is the folder of this file. Default: a new empty "
        "folder.",
    )
    url: Maybe[FilledText] = Field(None, description="The server's URL (http, sse).")
    headers: Mapping[FilledText, ConcealedText] = Field(
        default_factory=dict[str, Any], description="Headers sent with every request, such as credentials (http, sse)."
    )
    tools: McpToolsForm = Field(
        default_factory=lambda: McpToolsForm.model_validate({}), description="The server's tools to include."
    )
    timeout: PositiveNumber = Field(30.0, description="The time limit of one call, in seconds.")
    start: Literal["eager", "lazy"] = Field("eager", description="Whether to connect at start, or on first use.")
    grace: PositiveNumber = Field(
        60.0, description="How long the server's tools stay listed after the connection is lost, in seconds."
    )
    trust_annotations: Flag = Field(
        False, description="Whether the server's hints, such as read-only, may weaken a guard."
    )
    min_protocol_version: Maybe[ProtocolVersion] = Field(
        None, description="The oldest accepted protocol revision, such as 2025-06-18."
    )
    trust: Maybe[Literal["first_use", "pinned", "any"]] = Field(
        None, description="Which tool definitions are accepted: those first seen, those in pegboard.lock, or any."
    )


class McpForm(ToolForm):
    """The tools of an MCP server."""

    mcp: ServerForm = Field(description="The server.")
    auth: Maybe[SourceAuthForm] = Field(
        None, description="How Pegboard authenticates at the server (http, sse). Default: only with `mcp: {headers}`."
    )


def declare(tool: Declared[McpForm], build: BuildContext) -> None:
    """Add the server to the catalog as a source of tools; it is connected when the catalog starts."""
    at = tool.at / "mcp"
    problems = [
        *_misplaced(tool.value, tool.at),
        *_unfit(tool.value.mcp, at),
        *_out_of_reach(tool.value.mcp, at, build.config.path.absolute().parent),
    ]
    build.report.add(*problems)
    if problems:
        return
    auth = _auth(tool, build)
    if auth is None:
        return
    try:
        build.catalog.add_source(_source(tool, build, auth))
    except DefinitionError as error:
        build.refused(error, tool.at / "name")


def _auth(tool: Declared[McpForm], build: BuildContext) -> SourceAuth | None:
    """Return the authentication of requests to the server; `None` after reporting a problem."""
    form, at = tool.value, tool.at / "auth"
    server = form.mcp
    if form.auth is not None and server.transport == "stdio" and form.auth.mode != "none":
        text = "goes with an MCP server over HTTP; a program gets its credentials as `env:`. Remove it"
        build.report.add(at.problem(text, at_key=True))
        return None
    if form.auth is not None and form.auth.is_personal and server.trust == "any":
        auth = f"`auth: {{mode: {form.auth.mode}}}`"
        text = f"with {auth} the server of one person could then define the tools of all others. Remove it"
        build.report.add((tool.at / "mcp" / "trust").problem(text))
        return None
    upstream = Upstream(source=form.name, url=server.url or "", headers=server.headers, names_resource=True)
    return source_auth(form.auth, at, build, upstream)


def _source(tool: Declared[McpForm], build: BuildContext, auth: SourceAuth) -> McpSource:
    settings, lock = _settings(tool, build, auth), _lock(build)
    if auth.personal is None or tool.value.auth is None:
        return McpSource(settings, lock=lock)
    return PersonalMcpSource(
        settings,
        credentials=auth.personal,
        sessions=_sessions(build),
        lock=lock,
        idle_s=tool.value.auth.idle_seconds,
    )


def _sessions(build: BuildContext) -> PersonSessions | None:
    """Return the open sessions of persons, which all sources share, since their number is limited."""
    sources = build.catalog.registry.sources.values()
    return next((source.sessions for source in sources if isinstance(source, PersonalMcpSource)), None)


def _settings(tool: Declared[McpForm], build: BuildContext, auth: SourceAuth) -> ServerSettings:
    form, server = tool.value, tool.value.mcp
    spec = overlaid(ToolSpec(name=form.name), tool, build)
    folder = build.config.path.absolute().parent
    return ServerSettings(
        name=form.name,
        transport=server.transport,
        command=server.command or "",
        args=server.args,
        env={name: value for name, value in server.env.items() if not _is_unset(value)},
        cwd=str(folder / server.cwd) if server.cwd else None,
        url=server.url or "",
        headers=auth.headers,
        auth=None if auth.service is None else token_auth.TokenAuth(auth.service),
        only=server.tools.only,
        skip=server.tools.skip,
        rename=server.tools.rename,
        groups=spec.groups,
        tool_groups=server.tools.groups,
        tool_consents=server.tools.consent,
        call_intent=server.tools.call_intent,
        own={key: getattr(spec, key) for key in guards_of_each_tool()},
        timeout_s=spec.timeout_s or server.timeout,
        start=server.start,
        grace_s=server.grace,
        trust_annotations=server.trust_annotations,
        trust=server.trust,
        min_protocol_version=server.min_protocol_version,
        # The whole path, so that `doctor` finds the programs of a server that was started in another folder.
        program_id=digest([str(build.config.path.resolve()), form.name])[:PROGRAM_ID_CHARS],
        origin=tool.at.origin,
        bounds=build.config.bounds,
    )


def _is_unset(value: object) -> bool:
    """Tell whether a variable as in `${NAME:-}` is unset: many programs take an empty variable for an invalid one."""
    return isinstance(value, Secret) and not value.reveal()


def _lock(build: BuildContext) -> LockFile:
    """Return the lock file next to the config; all servers share one, since each writes the whole file."""
    known = (source.file for source in build.catalog.registry.sources.values() if isinstance(source, McpSource))
    return next(known, None) or LockFile(build.config.path.absolute().parent / LOCK_NAME)


def _misplaced(form: McpForm, at: At) -> list[Any]:
    return [
        (at / key).problem(
            "is said of one tool; an MCP server has its own for each of its tools. Remove it", at_key=True
        )
        for key in keys_of_one_tool()
        if getattr(form, key) is not None
    ]


def _out_of_reach(server: ServerForm, at: At, folder: Path) -> Iterator[Problem]:
    """Yield a problem for each word that names a file next to the config which the program would not find."""
    if server.transport != "stdio" or server.cwd is not None:
        return
    words = [("command", server.command if "/" in (server.command or "") else None)]
    words += [(index, word) for index, word in enumerate(server.args)]
    words += [(name, value) for name, value in server.env.items() if str(value).startswith((".", "./", "../"))]
    for step, word in words:
        is_module = isinstance(step, int) and step > 0 and server.args[step - 1] == "-m"
        for path in _paths_in(word, is_module=is_module):
            if _exists(folder / path):
                section = "args" if isinstance(step, int) else "env" if step in server.env else ""
                place = at / section / step if section else at / step
                text = f"{path!r} is next to this file, but the program runs in a separate, empty folder and would not"
                yield place.problem(f"{text} find it; add `cwd: .` to run it in this one")
                break


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False  # too long to be one


def _is_with_arguments(command: str) -> bool:
    """Tell whether a command looks like a shell command line. Paths may contain spaces; bare names do not."""
    return " " in command.strip() and not any(mark in command.split(maxsplit=1)[0] for mark in "/\\")


def _paths_in(word: object, *, is_module: bool) -> Iterator[str]:
    """Yield the relative paths that a word may be: the whole word, the value of `--option=`, or the module of `-m`."""
    if not isinstance(word, str) or not word or "\0" in word:
        return
    if is_module:
        yield f"{word.replace('.', '/')}.py"
        yield word.replace(".", "/")
    for path in (word, word.partition("=")[2]):
        if path and not path.startswith(("-", "/", "~")) and len(path) <= PATH_CHARS:
            yield path


def _unfit(server: ServerForm, at: At) -> list[Any]:
    """Return the problems of keys that do not fit the transport or are not supported yet."""
    kind = "stdio" if server.transport == "stdio" else "http"
    needed = "command" if kind == "stdio" else "url"
    problems = [
        (at / key).problem(f"does not go with `transport: {server.transport}`. Remove it", at_key=True)
        for key, needs in _OF_ONE_TRANSPORT.items()
        if needs != kind and getattr(server, key)
    ]
    if kind == "stdio" and platform.NO_PROGRAMS is not None:
        problems.append((at / "transport").problem(f"`transport: stdio` starts a program, and {platform.NO_PROGRAMS}"))
    if not getattr(server, needed):
        problems.append((at / needed).problem(f"`transport: {server.transport}` needs `{needed}:`"))
    elif kind == "stdio" and _is_with_arguments(server.command or ""):
        text = (
            "is a program with arguments, and no shell reads it. Write the program alone, and each argument in `args:`"
        )
        problems.append((at / "command").problem(f"{(at / 'command').shown} {text}"))
    if server.url is not None and not server.url.startswith(("http://", "https://")):
        problems.append((at / "url").problem(f"{server.url!r} is not an http or https address"))
    return problems
