"""Revision: the config as a revision of its git repository has it, written to a folder of this user alone."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from pegboard.cli.command_error import CommandError, Exit
from pegboard.egress.process import launch
from pegboard.model.error import CallError

PLAN_GIT_S = 60.0  # for one git command

# Neither hooks nor a file monitor run while files are written. Filters do (such as Git LFS), which only the user's own
# git configuration can name, not the files of the repository.
_QUIET = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false")


@asynccontextmanager
async def checked_out(config: Path, revision: str) -> AsyncGenerator[tuple[Path, str]]:
    """Give the config file of a revision, in a copy of its folder, and the short hash of the commit.

    The whole folder is copied, since the config may name any file below it. The working tree is left alone.

    Raises:
        CommandError: there is no git or no repository, or the revision does not exist or has no such config.
    """
    folder = _folder_of(config)
    commit = await _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if not commit:
        inside = await _git(folder, "rev-parse", "--is-inside-work-tree")
        place = f"{revision!r} is neither a file nor a revision of the git repository of {str(config)!r}"
        text = place if inside else f"{str(config)!r} is in no git repository that `git` can read"
        raise CommandError(f"{text}. Name a revision or a config file with --against.", kind="no_revision")
    prefix = await _git(folder, "rev-parse", "--show-prefix") or ""
    with tempfile.TemporaryDirectory(prefix="pegboard-plan-") as name:
        copy = Path(name, "files")
        index = {"GIT_INDEX_FILE": str(Path(name, "index"))}
        top = await _git(folder, "rev-parse", "--show-toplevel") or str(folder)
        wrote = await _git(Path(top), "read-tree", f"{commit}:{prefix}", env=index)
        if wrote is not None:
            wrote = await _git(Path(top), "checkout-index", "--all", f"--prefix={copy}/", env=index)
        if wrote is None or not (copy / config.name).is_file():
            raise CommandError(
                f"{revision} has no {config.name!r} in its folder, so there is nothing to compare with. Name another "
                "revision, or a config file, with --against.",
                kind="no_revision",
            )
        yield copy / config.name, commit[:9]


def _folder_of(config: Path) -> Path:
    return config.absolute().parent


async def _git(folder: Path, *words: str, env: dict[str, str] | None = None) -> str | None:
    """Return the first line that git writes, empty if it writes nothing; `None` if it fails."""
    try:
        async with await launch("git", (*_QUIET, *words), cwd=folder, env=env) as process:
            process.close_stdin()
            lines = [line async for line in process.lines()]
            code = await process.ended(within_s=PLAN_GIT_S)
    except CallError as error:
        raise CommandError(error.error.message, kind="no_git", code=Exit.REFUSED) from None
    return (lines[0].decode("utf-8", "replace").rstrip("\n") if lines else "") if code == 0 else None
