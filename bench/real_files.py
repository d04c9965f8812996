"""Real files: ingests a folder of files from Debian, Python and npm packages, and tells what went in, by kind.

`python -m bench.real_files` copies up to 40 files of each ending from the installed packages of this machine into a
temporary folder. Nothing of them is stored.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from pegboard import Workspace
from pegboard.model.bounds import MIB

ROOTS = ("/usr/share/doc", "/usr/share/man", "/usr/share/info", "/usr/share/perl", "/usr/lib/python3", "/etc")
OF_EACH_ENDING = 40
LARGEST_BYTES = 5 * MIB
_ROOT = Path(__file__).resolve().parents[1]


def gathered(folder: Path) -> int:
    """Copy a sample of real files into a folder; return their number."""
    by_ending: dict[str, list[Path]] = defaultdict(list)
    own = (_ROOT / ".venv" / "lib", _ROOT / "tools" / "node" / "node_modules")
    for root in (*map(Path, ROOTS), *own):
        for path in _files(root):
            by_ending[_ending(path)].append(path)
    count = 0
    for ending, paths in sorted(by_ending.items()):
        # In the order of a digest: a sample that is spread over packages, and the same each time.
        for path in sorted(paths, key=lambda path: hashlib.sha256(str(path).encode()).digest())[:OF_EACH_ENDING]:
            target = folder / (ending or "none") / f"{count}-{path.name}"
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, target)
            count += 1
    return count


def _files(root: Path) -> Iterator[Path]:
    for path in root.rglob("*"):
        if path.is_symlink() or not path.is_file() or path.name.startswith(".") or "shadow" in path.name:
            continue
        if path.stat().st_size <= LARGEST_BYTES:
            yield path


def _ending(path: Path) -> str:
    return path.suffix.lower().lstrip(".")[:12] if path.suffix.isascii() else "other"


async def main() -> None:
    """Gather, ingest, and report."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "files"
        folder.mkdir()
        count = gathered(folder)
        workspace = Workspace(f"sqlite:{scratch}/documents.db")
        report = await workspace.ingest(folder, space="s1")
        workspace.close()
    added, failed = report.counts["added"], len(report.bad)
    unread = report.kinds_not_read.total()
    print(f"{count} files: {added} went in ({added / count:.1%}), {failed} failed, {unread} of kinds that are not read")
    documents = count - unread
    print(f"of the {documents} that are neither pictures, programs nor archives: {added / documents:.1%}")
    print("not read:", dict(Counter(each.reason for each in report.not_read).most_common()))
    for bad in report.bad:
        print(f"failed: {bad.path}: {bad.reason}")
    if "--kinds" in sys.argv:
        print("not read, by ending:", dict(report.kinds_not_read.most_common()))


if __name__ == "__main__":
    asyncio.run(main())
