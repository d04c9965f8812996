"""import: take over what people have elsewhere: servers of MCP clients, catalogs, tools and agents."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from cyclopts import Parameter

from pegboard.cli.command_error import CommandError, Exit
from pegboard.cli.config_entry import ConfigFile, open_config, write_config
from pegboard.cli.declarations.imported import imported_proposal
from pegboard.cli.declarations.proposal import Proposal
from pegboard.cli.fitting import fitted
from pegboard.cli.options import Options, SharedOptions
from pegboard.config import block_text
from pegboard.model.record import replace

_WHAT = (
    "What to import: an MCP client (claude-desktop, cursor, …) or its file, a Docker MCP catalog, a FastMCP server "
    "(file.py:object, fastmcp.json), LangChain tools (module:object), or Astromesh's agents (a folder, or one file)."
)
_CONSENT = "When a person is asked before a call of the servers: never, destructive, always."


async def importing_command(
    what: Annotated[str, Parameter(help=_WHAT)],
    /,
    *,
    consent: Annotated[Literal["never", "destructive", "always"], Parameter(help=_CONSENT)] = "destructive",
    yes: Annotated[bool, Parameter(help="Write without asking.")] = False,
    print_only: Annotated[bool, Parameter(name="--print", help="Print the result; write nothing.")] = False,
    options: SharedOptions,
) -> Exit:
    """Import servers, tools and agents from other programs.

    Nothing is started. Everything that is not carried over is named, and then the command ends with 1. Secrets that
    are in plain text become ${VARIABLE}, with the line to export, and are not printed.
    """
    file = open_config(options)
    proposal = file.with_way_out(imported_proposal(what, folder=file.folder, taken=set(file.taken)))
    if consent != "never":
        proposal = replace(proposal, tools=tuple({**tool, "consent": consent} for tool in proposal.tools))
    if proposal.tools or proposal.files:
        proposal, text = await fitted(file, proposal, options)
    else:
        _note_left_out(options, proposal)
        raise CommandError(f"Nothing of {what!r} can be taken over; nothing was written.", kind="nothing_to_import")
    terminal = options.terminal
    is_new = bool(proposal.tools or proposal.files)
    is_asked = is_new and not (yes or print_only or options.json) and sys.stdin.isatty()
    if is_new and not (is_asked or yes or print_only):
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
    if is_new and not print_only:
        write_config(file, text, proposal.files)
    _tell(options, file, proposal, is_written=is_new and not print_only)
    return Exit.REFUSED if proposal.left_out else Exit.DONE


def _shown(proposal: Proposal) -> str:
    """Return the proposed YAML and files."""
    text = f"tools:\n{block_text(proposal.tools)}" if proposal.tools else ""
    return text + "".join(f"\n# {path}\n{content}" for path, content in proposal.files.items())


def _note_left_out(options: Options, proposal: Proposal) -> None:
    for text in proposal.notes:
        options.terminal.note(text)
    for text in proposal.left_out:
        options.terminal.note(f"Not carried over: {text}")


def _tell(options: Options, file: ConfigFile, proposal: Proposal, *, is_written: bool) -> None:
    if options.json:
        options.terminal.json({
            "file": str(file.path), "written": is_written, "tools": list(proposal.tools),
            "files": list(proposal.files) if is_written else dict(proposal.files),
            "exports": [export.variable for export in proposal.exports], "left_out": list(proposal.left_out),
            "notes": list(proposal.notes),
        })  # fmt: skip
        return
    terminal = options.terminal
    if not (proposal.tools or proposal.files):
        terminal.say("There is nothing new to write.")
    if is_written:
        names = ", ".join((*proposal.names, *proposal.files))
        terminal.say(
            f"Wrote {names} into {file.path}." if proposal.tools else f"Wrote {names}, and named it in {file.path}."
        )
        if proposal.tools:
            terminal.say("Next: `pegboard lock` connects to each server and pins the definitions of its tools.")
    if proposal.exports:
        terminal.say("Set before you start it:\n" + "\n".join(f"  {export.line}" for export in proposal.exports))
