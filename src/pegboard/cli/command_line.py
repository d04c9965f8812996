"""Command line: run one command and report how it ended."""

from __future__ import annotations

import asyncio
import errno
import inspect
import os
import re
import tempfile
import traceback
from collections.abc import Sequence
from difflib import get_close_matches

from cyclopts import CycloptsError, UnknownOptionError, UnusedCliTokensError

from pegboard.cli.app import SHARED_OPTIONS, build_app
from pegboard.cli.command_error import CommandError, Exit
from pegboard.cli.end_of_options import with_end_of_options
from pegboard.cli.log_lines import logging_to
from pegboard.cli.terminal import Terminal, UnwritableError
from pegboard.core.names import nearest_one
from pegboard.model.error import DefinitionError, PegboardError

_FULL = frozenset({errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EFBIG, errno.EIO})
_OPTION = re.compile(r"--[A-Za-z][\w-]*")
_OF_CALL = ("--args", "--yes", "--help")


def run(words: Sequence[str], *, owns_process: bool) -> int:
    """Run `pegboard` with these words; return the exit code. `owns_process`: nothing else runs in this process."""
    terminal = Terminal()
    with logging_to(terminal):
        try:
            code = _ended(words, terminal, owns_process=owns_process)
            terminal.flush()
        except (UnwritableError, BrokenPipeError) as error:
            terminal.abandon()
            if isinstance(error, BrokenPipeError) or error.is_reader_gone:
                return int(Exit.DONE)  # the reader has what it wanted
            terminal.note(f"pegboard: {error}")
            return int(Exit.REFUSED)
    return code


def _ended(words: Sequence[str], terminal: Terminal, *, owns_process: bool) -> int:
    try:
        words = with_end_of_options(words)
        app = build_app(terminal, words, owns_process=owns_process)
        result = app.meta(words, exit_on_error=False, print_error=False, result_action="return_value")
        code = asyncio.run(result) if inspect.iscoroutine(result) else result
    except SystemExit as stopped:
        if isinstance(stopped.__context__, BrokenPipeError):
            # Printing the help ends here if its reader has gone.
            raise stopped.__context__ from None
        return stopped.code if isinstance(stopped.code, int) else int(Exit.REFUSED)
    except KeyboardInterrupt:
        terminal.note("\nStopped.")
        return int(Exit.INTERRUPTED)
    except (UnwritableError, BrokenPipeError):
        raise
    except OSError as error:
        # Only the help and the version are written to standard output directly; errors of other files name the file.
        if error.errno in _FULL and error.filename is None:
            raise UnwritableError(error) from error
        return _report(error, terminal, as_json="--json" in words)
    except Exception as error:  # noqa: BLE001 - boundary: the outermost handler of the command line
        return _report(error, terminal, as_json="--json" in words)
    return 0 if code is None else int(code)


def _report(error: Exception, terminal: Terminal, *, as_json: bool) -> int:
    """Report on stderr what went wrong, with `--json` also as a document on stdout. Return the exit code."""
    match error:
        case CommandError():
            fault = error
        case DefinitionError() if any(problem.where for problem in error.problems):
            fault = CommandError(_counted(error), kind="config_invalid", problems=error.problems)
        case UnusedCliTokensError(unused_tokens=[str(word), *_]):
            hint = (
                f"name the config with --config {word}"
                if word.endswith((".yaml", ".yml"))
                else "options begin with `--`"
            )
            fault = CommandError(f"Unexpected argument {word!r}; {hint}. See `{_help_of(error)}`.")
        case UnknownOptionError(command_chain=["call"]) if option := _tool_argument(error):
            fault = CommandError(
                f"Write arguments of the tool without `--`: {option}=VALUE. See `pegboard call --help`."
            )
        case CycloptsError():
            fault = CommandError(f"{error}{_shared_option(error)} See `{_help_of(error)}`.")
        case PegboardError():
            fault = CommandError(str(error), kind="config_invalid")
        case _:
            fault = _bug(error, terminal)
    terminal.note_problems(fault.problems)
    terminal.note(f"pegboard: {fault}")
    if as_json:
        problems = [{"where": item.where, "path": item.path, "message": item.message} for item in fault.problems]
        terminal.json({"error": {"kind": fault.kind, "message": terminal.clean(str(fault)), "problems": problems}})
    return int(fault.code)


def _tool_argument(error: CycloptsError) -> str | None:
    """Return the name in an unknown option, unless it is a misspelled option of `pegboard call`."""
    option = _OPTION.search(str(error))
    is_misspelled = option is None or get_close_matches(option[0], (*SHARED_OPTIONS, *_OF_CALL), cutoff=0.8)
    return None if option is None or is_misspelled else option[0].removeprefix("--")


def _help_of(error: CycloptsError) -> str:
    """Return the words that show the help of the command that was meant."""
    return " ".join(("pegboard", *(error.command_chain or ()), "--help"))


def _shared_option(error: CycloptsError) -> str:
    """Return the shared option that was meant; cyclopts only knows those of the command."""
    option = None if "Did you mean" in str(error) else _OPTION.search(str(error))
    near = option and nearest_one(option[0], SHARED_OPTIONS)
    return f" Did you mean {near}?" if near and option and near != option[0] else ""


def _counted(error: DefinitionError) -> str:
    count = len(error.problems)
    return f"{count} problem{'s' if count != 1 else ''} in the configuration; nothing was started."


def _bug(error: Exception, terminal: Terminal) -> CommandError:
    text = terminal.clean("".join(traceback.format_exception(error)))
    kind = type(error).__name__
    if os.environ.get("PEGBOARD_DEBUG"):
        terminal.note(text)
        return CommandError(f"internal error ({kind}). This is a bug in Pegboard.", kind="bug", code=Exit.BUG)
    with tempfile.NamedTemporaryFile(
        "w", prefix="pegboard-", suffix=".log", delete=False, encoding="utf-8", errors="backslashreplace"
    ) as file:
        file.write(text)
    return CommandError(
        f"internal error ({kind}). This is a bug in Pegboard; its traceback is in {file.name!r}, "
        "and PEGBOARD_DEBUG=1 shows it.",
        kind="bug",
        code=Exit.BUG,
    )
