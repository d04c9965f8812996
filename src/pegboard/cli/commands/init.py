"""init: write a first configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pegboard.cli.command_error import CommandError
from pegboard.cli.options import SharedOptions
from pegboard.config import init_files


def init_command(
    folder: Annotated[Path, Parameter(help="Folder to write to; created if missing. Default: this folder.")] = Path(),
    /,
    *,
    options: SharedOptions,
) -> None:
    """Write a first configuration, with comments.

    Nothing that exists is overwritten.
    """
    files = init_files()
    present = [name for name in files if (folder / name).exists()]
    if present:
        named = ", ".join(repr(str(folder / name)) for name in present)
        raise CommandError(
            f"{named} {'exists' if len(present) == 1 else 'exist'} already; nothing was written. "
            "Edit what is there, or name another folder: `pegboard init FOLDER`.",
            kind="exists",
        )
    for name, text in files.items():
        _write_new(folder / name, text)
    written = [str(folder / name) for name in files]
    steps = ["pegboard check", "pegboard list"]
    if folder != Path():
        steps.insert(0, f"cd {folder}")
    if options.json:
        options.terminal.json({"written": written, "next": steps})
        return
    options.terminal.say("\n".join(f"Wrote {name}" for name in written))
    options.terminal.say("Next:\n" + "\n".join(f"  {step}" for step in steps))


def _write_new(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:  # raw: the operator's own folder, named on the command line
            file.write(text)
    except OSError as error:
        raise CommandError(f"{str(path)!r} cannot be written: {error.strerror}.", kind="not_written") from error
