"""add: add the tools of a server or an API to a config: connect once, show them, guard them, pin them."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from sys import stderr
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from msgspec import Struct

from pegboard.catalog import Catalog
from pegboard.cli.command_error import CommandError, Exit
from pegboard.cli.config_entry import ConfigFile, open_config, trial, write_config
from pegboard.cli.declarations.added import AddedWords, proposal_of
from pegboard.cli.declarations.derived_names import group_stem
from pegboard.cli.declarations.proposal import Proposal
from pegboard.cli.options import Options, SharedOptions
from pegboard.cli.source_startup import started
from pegboard.cli.terminal import CLI_SHOWN_CHARS, Column
from pegboard.config import block_text, with_groups, with_included
from pegboard.config.config import LOCK_NAME
from pegboard.core.names import fold
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSON, JSONValue, is_object
from pegboard.model.record import replace
from pegboard.model.tool import ToolSpec
from pegboard.sources.mcp.definition_changes import classify
from pegboard.sources.mcp.supervised_source import McpSource

ADD_CONNECT_S = 180.0  # seconds to connect to an added server, whose package may have to be downloaded first
ADD_SHOWN_TOOLS = 60  # tools of an added server that are listed; `--json` has all

Consent = Literal["never", "destructive", "always"]
_WHAT = (
    "What to add: the command of an MCP server (`npx -y PACKAGE`, `uvx PACKAGE`), its address, an OpenAPI document "
    "(a file or its address), a server.json of the MCP registry, or a service where people have accounts: github, "
    "gitlab, linear, notion, slack, google, microsoft, atlassian, sentry, stripe, cloudflare. Put the "
    "options of `pegboard add` before such a command."
)
_CONSENT = "When a person is asked before a call: never, destructive (all but trusted read-only tools), always."


class Offered(Struct, frozen=True, kw_only=True):
    """One tool of the server: its own description and hints, and warnings for the reader."""

    name: str
    description: str
    hints: JSON
    warnings: tuple[str, ...] = ()

    @property
    def only_reads(self) -> bool:
        return self.hints.get("readOnlyHint") is True

    @property
    def may_destroy(self) -> bool:
        return not self.only_reads and self.hints.get("destructiveHint") is not False


async def add_command(
    *what: Annotated[str, Parameter(help=_WHAT)],
    name: Annotated[
        str | None, Parameter(help="Name of the source; its tools are NAME__…. Default: the server's own name.")
    ] = None,
    group: Annotated[
        tuple[str, ...],
        Parameter(help="Group for all tools, instead of NAME_read and NAME_write.", negative_iterable=()),
    ] = (),
    consent: Annotated[Consent | None, Parameter(help=_CONSENT)] = None,
    only: Annotated[
        tuple[str, ...],
        Parameter(help="Add only tools that match this pattern; may be repeated.", negative_iterable=()),
    ] = (),
    skip: Annotated[
        tuple[str, ...],
        Parameter(help="Leave out tools that match this pattern; may be repeated.", negative_iterable=()),
    ] = (),
    env: Annotated[
        tuple[str, ...],
        Parameter(
            help="NAME=VALUE for the server's environment; a secret is written as ${NAME}.", negative_iterable=()
        ),
    ] = (),
    header: Annotated[
        tuple[str, ...],
        Parameter(help="'Name: value' for every request; it is written as ${VARIABLE}.", negative_iterable=()),
    ] = (),
    base_url: Annotated[
        str | None, Parameter(help="Address of the API, if the document does not have the right one.")
    ] = None,
    kind: Annotated[
        Literal["mcp", "openapi"] | None,
        Parameter(name="--type", help="The type of the address, if it cannot be detected."),
    ] = None,
    trust_annotations: Annotated[
        bool, Parameter(help="Trust the server's hints: read-only tools run without asking.")
    ] = False,
    offline: Annotated[bool, Parameter(help="Write without connecting; `pegboard lock` pins the tools later.")] = False,
    yes: Annotated[bool, Parameter(help="Accept the proposed answers without asking.")] = False,
    print_only: Annotated[bool, Parameter(name="--print", help="Print the entry; write nothing.")] = False,
    options: SharedOptions,
) -> Exit:
    """Declare the tools of an MCP server or an HTTP API.

    Connects once, shows the tools, suggests groups and guards based on their hints, writes the entry into the
    configuration and pins the tools in pegboard.lock. Secrets are written as ${VARIABLE}. With --profile, the groups of
    the tools are added to those that the profile includes.
    """
    file = open_config(options)
    words = AddedWords(
        what=what, name=name, env=env, headers=header, base_url=base_url, kind=kind, only=only, skip=skip,
        folder=file.folder, here=Path.cwd(),
    )  # fmt: skip
    proposal = file.with_way_out(proposal_of(words))
    entry = proposal.tools[0]
    if fold(str(entry["name"])) in file.taken:
        raise CommandError(
            f"There is an entry {entry['name']!r} in {str(file.path)!r} already; nothing was written. "
            "Call the new one otherwise: --name NAME.",
            kind="exists",
        )
    if options.chosen_profile is not None:
        # Checked before any program is started.
        _included(file, file.text, options.chosen_profile, [group_stem(str(entry["name"]))])
    is_asked = not yes and not print_only and not options.json and sys.stdin.isatty()
    if not (is_asked or yes or print_only):
        raise CommandError("Nobody can be asked here: say --yes, or --print to see what would be written.")
    for text in proposal.left_out:
        options.terminal.note(f"Left out: {text}")
    for text in proposal.notes:
        options.terminal.note(f"{text[:1].upper()}{text[1:]}.")
    # Nobody is connected yet, so nothing can be listed.
    offline = offline or "auth" in entry
    adding = _Adding(options=options, file=file, is_asked=is_asked, is_printed=print_only, is_offline=offline)
    choice = _Choice(group=group, consent=consent, trusts=trust_annotations, is_openapi=entry["type"] == "openapi")
    tried = _tried(file, proposal, group)
    with trial(file, tried, exports=proposal.exports, options=options, is_offline=offline) as (catalog, _):
        try:
            added = await _added(adding, catalog, proposal, choice)
        finally:
            with redirect_stdout(stderr):
                await catalog.close(grace_s=0.0)
    if added is None:
        return Exit.REFUSED
    _tell(adding, added)
    return Exit.DONE


async def _added(adding: _Adding, catalog: Catalog, proposal: Proposal, choice: _Choice) -> _Added | None:
    """Connect, ask the questions, write the entry and pin its tools; `None` if the person declined."""
    options, file, [entry] = adding.options, adding.file, proposal.tools
    tools: list[Offered] = []
    definitions: Mapping[str, JSON] = {}
    if not adding.is_offline:
        tools, definitions = await _offered_tools(catalog, str(entry["name"]), options)
    if not options.json:
        _show(options, tools)
    choice = _choice_at_terminal(choice, tools, options) if adding.is_asked else choice
    proposal = replace(proposal, tools=(_in_named_group(_guarded(entry, tools, choice), file, choice),))
    text = _with_included_groups(file, file.with_proposal(proposal), proposal.tools[0], choice)
    if options.chosen_profile is not None:
        text = _included(file, text, options.chosen_profile, _groups_of(proposal.tools[0], choice))
    if adding.is_printed:
        options.terminal.say(block_text(proposal.tools).rstrip("\n")) if not options.json else None
    elif adding.is_asked:
        options.terminal.say(f"\n{block_text(proposal.tools)}")
        if not _says_yes(f"Write this into {file.path}?", options, default=True):
            options.terminal.say("Nothing was written.")
            return None
    pinned: list[str] = []
    held = [tool.name for tool in tools if "hidden text" in tool.warnings]
    if not adding.is_printed:
        write_config(file, text, proposal.files)
        pinned = _pinned(catalog, str(entry["name"]), definitions, held)
    return _Added(proposal=proposal, tools=tuple(tools), choice=choice, pinned=tuple(pinned), held=tuple(held))


def _included(file: ConfigFile, text: str, profile: str, groups: Sequence[str]) -> str:
    """Return the text of the config with groups added to a profile.

    Raises:
        CommandError: it has no such profile, or the profile cannot be changed.
    """
    try:
        return with_included(text, profile, groups)
    except DefinitionError as error:
        text = f"{str(file.path)!r} was not changed: {error}."
        raise CommandError(text, kind="not_included") from None


def _tried(file: ConfigFile, proposal: Proposal, group: Sequence[str]) -> str:
    """Return the config for the trial, with time enough to download a package."""
    [entry] = proposal.tools
    if "mcp" in entry:
        entry = {**entry, "mcp": {**entry["mcp"], "timeout": ADD_CONNECT_S}}
    # A profile may already include groups that are declared later.
    tried: JSON = {**entry, "groups": [*group, *_usual_groups(entry)]}
    return file.with_proposal(replace(proposal, tools=(tried,)))


async def _offered_tools(catalog: Catalog, name: str, options: Options) -> tuple[list[Offered], Mapping[str, JSON]]:
    """Connect and return the tools, and for an MCP server its definition of each, by its own names.

    Raises:
        CommandError: it cannot be reached.
    """
    source: Any = catalog.registry.sources[name]
    with redirect_stdout(stderr):
        faults = await started(catalog, [name], options.terminal, afresh=True)
    state = source.state()
    if name in faults or (state.status not in ("ok", "quarantined") and not source.entries()):
        reason = faults.get(name) or state.reason or f"it is {state.status}"
        hint = " Give its credentials with --header or --env." if state.status == "auth_required" else ""
        raise CommandError(
            f"{name!r} cannot be reached: {reason}{hint} Nothing was written; --offline writes without connecting.",
            kind="unreachable",
            code=Exit.REFUSED,
        )
    for raw, reason in getattr(source, "rejected", ()):
        options.terminal.note(f"{raw} cannot be taken: {reason}")
    if isinstance(source, McpSource):
        offered = {tool: source.offered()[tool] for tool in source.offered() if source.settings.takes(tool)}
        return [_of_definition(definition) for definition in offered.values()], offered
    return [_of_operation(entry.spec) for entry in source.entries()], {}


def _of_operation(spec: ToolSpec) -> Offered:
    hints = {"readOnlyHint": spec.is_read_only, "destructiveHint": spec.annotations.destructive is True}
    return Offered(name=spec.name, description=spec.description or "", hints=hints)


def _of_definition(definition: JSON) -> Offered:
    hints = definition.get("annotations")
    changes = classify({"name": definition["name"], "inputSchema": definition["inputSchema"]}, definition)
    warnings = [change.replace("_", " ") for change in changes if change in ("hidden_text", "imperative_text")]
    return Offered(
        name=definition["name"],
        description=str(definition.get("description") or definition.get("title") or ""),
        hints=hints if is_object(hints) else {},
        warnings=tuple(warnings),
    )


# ---- the choices, and their effects


class _Adding(Struct, frozen=True, kw_only=True):
    """The options of adding: the config, whether to ask a person, and whether to write and to connect."""

    options: Options
    file: ConfigFile
    is_asked: bool
    is_printed: bool
    is_offline: bool


class _Choice(Struct, frozen=True, kw_only=True):
    """How the tools are grouped and guarded. With `consent=None` their hints decide."""

    group: tuple[str, ...]
    consent: Consent | None
    trusts: bool
    is_openapi: bool


class _Added(Struct, frozen=True, kw_only=True):
    """The result. `held` are the tools that were not pinned, because their text has invisible characters."""

    proposal: Proposal
    tools: tuple[Offered, ...]
    choice: _Choice
    pinned: tuple[str, ...]
    held: tuple[str, ...]


def _choice_at_terminal(choice: _Choice, tools: Sequence[Offered], options: Options) -> _Choice:
    """Return the choice with the answers of the person at the keyboard."""
    reading = [tool for tool in tools if tool.only_reads]
    if not choice.group and reading and len(reading) < len(tools):
        text = f"{len(reading)} of {len(tools)} tools say that they only read. Put those into a separate group?"
        if not _says_yes(text, options, default=True):
            choice = replace(choice, group=("",))
    if choice.consent is None and any(tool.may_destroy for tool in tools):
        count = sum(tool.may_destroy for tool in tools)
        text = f"Ask a person before each call of the {count} that may change or destroy something?"
        choice = replace(choice, consent="destructive" if _says_yes(text, options, default=True) else "never")
    if choice.consent == "destructive" and reading and not choice.trusts and not choice.is_openapi:
        text = f"Believe the {len(reading)} that say they only read, so that those ask nobody? (They are pinned.)"
        choice = replace(choice, trusts=_says_yes(text, options, default=False))
    return choice


def _says_yes(question: str, options: Options, *, default: bool) -> bool:
    options.terminal.flush()
    options.terminal.err.write(f"{question} [{'Y/n' if default else 'y/N'}] ")
    options.terminal.err.flush()
    answer = sys.stdin.readline()
    if not answer:
        raise CommandError("The question was not answered; nothing was written. --yes takes what is offered first.")
    word = answer.strip().lower()
    return default if not word else word in ("y", "yes")


def _guarded(entry: JSON, tools: Sequence[Offered], choice: _Choice) -> JSON:
    """Return the entry with its groups and guards."""
    name = str(entry["name"])
    key = "openapi" if choice.is_openapi else "mcp"
    inner: JSON = {**entry[key]}
    # If no profile includes a group, its tools cannot be called: new and unknown tools belong with those that write.
    stem = group_stem(name)
    groups, reads = [f"{stem}_write"], f"{stem}_read"
    if choice.group:
        groups = [group for group in choice.group if group] or [stem]
    elif not any(tool.only_reads for tool in tools):
        groups = [stem]
    elif choice.is_openapi:
        inner["groups"] = {"GET *": [reads], "HEAD *": [reads]}
    elif all(tool.only_reads for tool in tools) and choice.trusts:
        groups = [reads]
    else:
        chosen = {_as_glob(tool.name): [reads] for tool in tools if tool.only_reads}
        inner["tools"] = {**inner.get("tools", {}), "groups": chosen}
    consent = choice.consent or ("destructive" if any(tool.may_destroy for tool in tools) or not tools else None)
    if choice.trusts and not choice.is_openapi:
        inner["trust_annotations"] = True
    guarded: JSON = {**entry, key: inner, "groups": groups}
    return guarded if consent in (None, "never") else {**guarded, "consent": consent}


def _in_named_group(entry: JSON, file: ConfigFile, choice: _Choice) -> JSON:
    """Return the entry with its tools also in the groups that a profile already includes for it."""
    stem = group_stem(str(entry["name"]))
    if entry["groups"] == [stem] and stem not in file.included and f"{stem}_write" in file.included:
        # Tools without a read-only hint belong with those that write.
        return entry if choice.group else {**entry, "groups": [f"{stem}_write"]}
    if stem not in file.included or choice.group or choice.is_openapi or stem in entry["groups"]:
        return entry
    inner: JSON = {**entry["mcp"]}
    by_tool = inner.get("tools", {}).get("groups")
    if by_tool:
        inner["tools"] = {**inner["tools"], "groups": {glob: [*named, stem] for glob, named in by_tool.items()}}
    return {**entry, "mcp": inner, "groups": [*entry["groups"], stem]}


def _usual_groups(entry: JSON) -> dict[str, str]:
    """Return the groups that an entry may use, with their descriptions."""
    name = str(entry["name"])
    stem = group_stem(name)
    return {
        stem: f"Tools of {name}.",
        f"{stem}_read": f"Tools of {name} that only read.",
        f"{stem}_write": f"Tools of {name} that may change something.",
    }


def _with_included_groups(file: ConfigFile, text: str, entry: JSON, choice: _Choice) -> str:
    """Return the config with declarations of the usual groups that a profile includes but no tool of the entry has.

    Without them the profile would name an unknown group, and the config would be refused.

    Raises:
        CommandError: the groups cannot be added.
    """
    known = {*_groups_of(entry, choice), *file.groups}
    missing = {
        group: text for group, text in _usual_groups(entry).items() if group in file.included and group not in known
    }
    try:
        return with_groups(text, missing) if missing else text
    except DefinitionError as error:
        raise CommandError(f"{str(file.path)!r} was not changed: {error}.", kind="not_included") from None


def _as_glob(name: str) -> str:
    """Return the glob that matches this name only."""
    return re.sub(r"([*?\[])", r"[\1]", name)


# ---- the lock


def _pinned(catalog: Catalog, name: str, definitions: Mapping[str, JSON], held: Sequence[str]) -> list[str]:
    """Pin the shown tools and return them; none if other servers have no lock yet, which would hide their tools."""
    source = catalog.registry.sources[name]
    if not isinstance(source, McpSource) or not definitions:
        return []
    lock = source.lock
    others = [
        other for other in catalog.registry.sources.values() if isinstance(other, McpSource) and other is not source
    ]
    if lock.fault or (not lock.existed and any(other.settings.trust != "any" for other in others)):
        return []
    lock.is_kept = True
    chosen = {tool: definition for tool, definition in definitions.items() if tool not in held}
    try:
        lock.drop(name)
        lock.accept(name, chosen)
    except OSError as error:
        raise CommandError(f"{str(lock.path)!r} cannot be written: {error.strerror}.", kind="not_written") from error
    return list(chosen)


# ---- output


def _show(options: Options, tools: Sequence[Offered]) -> None:
    """Write the tools with their hints and warnings."""
    if not tools:
        return
    columns = [Column(head="tool", style="bold"), Column(head="hint"), Column(head="description")]
    rows = [(tool.name, _hint(tool), options.terminal.clean(_first_line(tool))) for tool in tools[:ADD_SHOWN_TOOLS]]
    options.terminal.table(columns, rows)
    if len(tools) > ADD_SHOWN_TOOLS:
        options.terminal.say(f"… and {len(tools) - ADD_SHOWN_TOOLS} more")
    for tool in tools:
        if tool.warnings:
            options.terminal.say(f"Look twice at {tool.name}: its description has {' and '.join(tool.warnings)}.")


def _hint(tool: Offered) -> str:
    said = "read-only" if tool.only_reads else "destructive" if tool.hints.get("destructiveHint") is True else ""
    return said or ("writes" if tool.hints.get("destructiveHint") is False else "")


def _first_line(tool: Offered) -> str:
    line = (tool.description.strip().splitlines() or [""])[0]
    return line if len(line) <= CLI_SHOWN_CHARS else f"{line[: CLI_SHOWN_CHARS - 1]}…"


def _tell(adding: _Adding, added: _Added) -> None:
    """Report the result and the next steps."""
    options, file, proposal = adding.options, adding.file, added.proposal
    tools, pinned, held = added.tools, added.pinned, added.held
    [entry] = proposal.tools
    name = str(entry["name"])
    groups = _groups_of(entry, added.choice)
    if options.json:
        told: JSONValue = {
            "name": name, "file": str(file.path), "written": not adding.is_printed, "entry": entry, "groups": groups,
            "profile": options.chosen_profile,
            "tools": [{"name": tool.name, "hints": tool.hints, "warnings": list(tool.warnings)} for tool in tools],
            "pinned": list(pinned), "held_back": list(held),
            "exports": [export.variable for export in proposal.exports], "left_out": list(proposal.left_out),
        }  # fmt: skip
        options.terminal.json(told)
        return
    terminal = options.terminal
    if not adding.is_printed:
        count = f" with {len(tools)} tool{'' if len(tools) == 1 else 's'}" if tools else ""
        terminal.say(
            f"Wrote {name!r}{count} into {file.path}"
            + (f", and pinned {len(pinned)} in {LOCK_NAME}." if pinned else ".")
        )
        if held:
            terminal.say(
                f"Held back, because their definitions contain hidden characters: {', '.join(held)}."
                f" See them with `pegboard lock diff {name}`."
            )
        if "auth" in entry:
            terminal.say(f"Next: each person connects once: `pegboard connect {name} --as user=NAME`.")
        elif entry["type"] == "mcp" and not pinned:
            terminal.say("Next: `pegboard lock` pins the definitions of the servers' tools.")
        if options.chosen_profile is not None:
            terminal.say(f"The profile {options.chosen_profile!r} includes {' and '.join(map(repr, groups))} now.")
        else:
            terminal.say(
                f"Next: add {' or '.join(map(repr, groups))} to `include:` of the profiles that should see the tools."
            )
    if proposal.exports:
        terminal.say("Set before you start it:\n" + "\n".join(f"  {export.line}" for export in proposal.exports))


def _groups_of(entry: JSON, choice: _Choice) -> list[str]:
    inner = entry["openapi"].get("groups", {}) if choice.is_openapi else entry["mcp"].get("tools", {}).get("groups", {})
    named = [group for groups in inner.values() for group in groups]
    return list(dict.fromkeys([*named, *entry["groups"]]))
