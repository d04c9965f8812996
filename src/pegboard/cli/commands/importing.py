"""import: take over what people have elsewhere: servers of MCP clients, catalogs, tools and agents."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Literal

from cyclopts import Parameter

from pegboard.cli.command_error import CommandError, Exit
from pegboard.cli.config_entry import ConfigFile, open_config, trial, write_config
from pegboard.cli.declarations.imported import imported_proposal
from pegboard.cli.declarations.proposal import Proposal, joined
from pegboard.cli.options import Options, SharedOptions
from pegboard.config import block_text
from pegboard.model.error import DefinitionError
from pegboard.model.record import replace

_WHAT = (
    "What to take over: an MCP client (claude-desktop, cursor, …) or its file, a catalog of Docker's, a FastMCP server "
    "(file.py:object, fastmcp.json), LangChain tools (module:object), or a folder of Astromesh's agents."
)
_CONSENT = "When a person is asked before a call of the servers: never, destructive, always."


async def importing_command(
    what: Annotated[str, Parameter(help=_WHAT)],
    /,
    *,
    consent: Annotated[Literal["never", "destructive", "always"], Parameter(help=_CONSENT)] = "destructive",
    yes: Annotated[bool, Parameter(help="Write without asking.")] = False,
    print_only: Annotated[bool, Parameter(name="--print", help="Print what would be written; write nothing.")] = False,
    options: SharedOptions,
) -> Exit:
    """Take over servers, tools and agents from elsewhere.

    Nothing is started. Everything that is not carried over is named. Secrets that stand there in clear become
    ${VARIABLE}, with the line to export, and are not printed.
    """
    file = open_config(options)
    proposal = file.with_way_out(imported_proposal(what, folder=file.folder, taken=set(file.taken)))
    if consent != "never":
        proposal = replace(proposal, tools=tuple({**tool, "consent": consent} for tool in proposal.tools))
    if proposal.tools or proposal.files:
        proposal, text = await _holding(file, proposal, options)
    else:
        _note_left_out(options, proposal)
        raise CommandError(f"Nothing of {what!r} can be taken over; nothing was written.", kind="nothing_to_import")
    terminal = options.terminal
    is_asked = not (yes or print_only or options.json) and sys.stdin.isatty()
    if not (is_asked or yes or print_only):
        raise CommandError("Nobody can be asked here: say --yes, or --print to see what would be written.")
    if not options.json:
        _note_left_out(options, proposal)
        if is_asked or print_only:
            terminal.say(_shown(proposal).rstrip("\n"))
    if is_asked:
        terminal.flush()
        terminal.err.write(f"Write this into {file.path}? [Y/n] ")
        terminal.err.flush()
        if sys.stdin.readline().strip().lower() not in ("", "y", "yes"):
            terminal.say("Nothing was written.")
            return Exit.REFUSED
    if not print_only:
        write_config(file, text, proposal.files)
    _tell(options, file, proposal, is_printed=print_only)
    return Exit.DONE


async def _holding(file: ConfigFile, proposal: Proposal, options: Options) -> tuple[Proposal, str]:
    """Return what of a proposal can be honoured, and the config with it; what cannot is left out with the reason."""
    try:
        return proposal, await _tried(file, proposal, options)
    except (CommandError, DefinitionError) as error:
        parts = list(_parts(proposal))
        if len(parts) <= 1 and not proposal.tools:
            raise
        first = error
    held: list[Proposal] = []
    reasons: list[str] = []
    for part in parts:
        try:
            await _tried(file, joined([*held, part]), options)
            held.append(part)
        except (CommandError, DefinitionError) as error:
            name = next(iter((*part.names, *part.files, *part.python)), "it")
            reasons.append(f"{name}: {str(error).removeprefix('This cannot be added: ').partition(' Nothing was')[0]}")
    if not held:
        raise first
    kept = joined(held)
    used = {
        name
        for name in (export.variable for export in proposal.exports)
        if f"${{{name}" in str((kept.tools, kept.files))
    }
    exports = tuple(export for export in proposal.exports if export.variable in used)
    kept = replace(kept, exports=exports, left_out=(*proposal.left_out, *reasons))
    return kept, await _tried(file, kept, options)


def _parts(proposal: Proposal) -> Iterator[Proposal]:
    """Yield a proposal piece by piece."""
    for tool in proposal.tools:
        yield Proposal(tools=(tool,), exports=proposal.exports)
    for path, text in proposal.files.items():
        # Files of one kind share what leads to them.
        yield Proposal(python=proposal.python, globs=proposal.globs, files={path: text}, exports=proposal.exports)


async def _tried(file: ConfigFile, proposal: Proposal, options: Options) -> str:
    unique = replace(proposal, python=tuple(dict.fromkeys(proposal.python)), globs=tuple(dict.fromkeys(proposal.globs)))
    text = file.with_proposal(unique)
    with trial(file, text, exports=proposal.exports, options=options, is_offline=True, files=proposal.files) as (
        catalog,
        _,
    ):
        await catalog.close(grace_s=0.0)
    return text


def _shown(proposal: Proposal) -> str:
    """Return what would be written, as YAML and as files."""
    text = f"tools:\n{block_text(proposal.tools)}" if proposal.tools else ""
    return text + "".join(f"\n# {path}\n{content}" for path, content in proposal.files.items())


def _note_left_out(options: Options, proposal: Proposal) -> None:
    for text in proposal.left_out:
        options.terminal.note(f"Not carried over: {text}")


def _tell(options: Options, file: ConfigFile, proposal: Proposal, *, is_printed: bool) -> None:
    if options.json:
        options.terminal.json({
            "file": str(file.path), "written": not is_printed, "tools": list(proposal.tools),
            "files": dict(proposal.files) if is_printed else list(proposal.files),
            "exports": [export.variable for export in proposal.exports], "left_out": list(proposal.left_out),
        })  # fmt: skip
        return
    terminal = options.terminal
    if not is_printed:
        names = ", ".join((*proposal.names, *proposal.files))
        terminal.say(
            f"Wrote {names} into {file.path}." if proposal.tools else f"Wrote {names}, and named it in {file.path}."
        )
        if proposal.tools:
            terminal.say("Next: `pegboard lock` connects to each server and pins what it says of its tools.")
    if proposal.exports:
        terminal.say("Set before you start it:\n" + "\n".join(f"  {export.line}" for export in proposal.exports))
