"""Blocks: the code of a Markdown page, run in the order in which a reader meets it.

* ```python             runs, all blocks of a page in one namespace; `await` works at the top level; `>>>` is a doctest
* ```python title=NAME  is written to the file NAME, as is ```yaml title=NAME
* ```console            each `$ command` runs; its output has to be what follows, where `...` stands for anything
* any other             is to be read only

Files and commands of a page share one fresh folder.
"""

import ast
import asyncio
import doctest
import inspect
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pegboard import Catalog
from pegboard.config.python_modules import registering_on
from tests import forking

_FENCE = re.compile(r"^```(?P<language>\w+)(?P<more>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
# A command without anything that a shell would do.
# A command says so where a source takes longer than usual, as it does on a busy machine.
_WAITED = re.compile(r"^Waiting up to [\d.]+ s for '.*' to tell its tools\.\n", re.MULTILINE)
_PLAIN = re.compile(r"pegboard [^|&;<>()$`*?\[{~#!\\]+")
_TITLE = re.compile(r"title=(\S+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """A fenced block: its language, its text, the file it is to become if any, and its first line in the page."""

    language: str
    text: str
    title: str | None
    line: int


def blocks_of(page: str) -> Iterator[Block]:
    """Yield the blocks of a page."""
    for found in _FENCE.finditer(page):
        title = _TITLE.search(found["more"])
        yield Block(
            language=found["language"],
            text=found["text"],
            title=title[1] if title else None,
            line=page.count("\n", 0, found.start()) + 2,
        )


@dataclass(kw_only=True)
class Runner:
    """Runs the blocks of one page in one folder and one namespace."""

    folder: Path
    name: str
    namespace: dict[str, Any] = field(default_factory=lambda: {"__name__": "__page__"})

    def run(self, page: str) -> None:
        """Run every block; what fails is reported with the line of the page."""
        with chdir(self.folder), registering_on(Catalog()), _imports_from(self.folder), asyncio.Runner() as loop:
            for block in blocks_of(page):
                if block.title is not None:
                    (self.folder / block.title).write_text(block.text, encoding="utf-8")
                elif block.language == "console":
                    self._console(block)
                elif block.language == "python":
                    self._doctest(block) if ">>>" in block.text else self._python(block, loop)

    def _python(self, block: Block, loop: asyncio.Runner) -> None:
        # Line breaks before the text make tracebacks and `inspect` name the line of the page.
        code = compile(
            "\n" * (block.line - 1) + block.text,
            self.name,
            "exec",
            flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
            dont_inherit=True,
        )
        made = eval(code, self.namespace)
        if inspect.iscoroutine(made):
            loop.run(made)

    def _doctest(self, block: Block) -> None:
        test = doctest.DocTestParser().get_doctest(block.text, self.namespace, self.name, self.name, block.line - 1)
        said: list[str] = []
        checker = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        checker.run(test, out=said.append, clear_globs=False)
        self.namespace.update(test.globs)
        if checker.failures:
            pytest.fail("".join(said))

    def _console(self, block: Block) -> None:
        for command, expected in _commands(block.text):
            shown = _WAITED.sub("", _output(command, self.folder))
            if not _looks_like(shown, expected):
                pytest.fail(f"{self.name}:{block.line}: $ {command}\n-- expected\n{expected}\n-- got\n{shown}")


def _output(command: str, folder: Path) -> str:
    """Run a command of a page; what it prints is what a terminal would show of both outputs."""
    if _PLAIN.fullmatch(command):
        ended = forking.run(shlex.split(command), cwd=folder, env=_environment(), is_merged=True, timeout_s=120)
    else:
        ended = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=120,
        )
    return ended.stdout.decode()


def _commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command with the output that the page shows; a command that ends with `\\` goes on below."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = re.sub(r"\\\n\s*", "", part).partition("\n")
        yield command, expected


def _looks_like(shown: str, expected: str) -> bool:
    """Tell whether an output is what a page shows, but for white space and what `...` leaves out."""
    parts = [re.escape(" ".join(part.split())) for part in expected.split("...")]
    return re.fullmatch(r"\s*" + r".*".join(parts) + r"\s*", " ".join(shown.split()), re.DOTALL) is not None


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PEGBOARD_", "PYTEST_", "COV"))}
    path = os.pathsep.join((forking.programs(), str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    return {**kept, "PATH": path, "COLUMNS": "120", "NO_COLOR": "1"}


@contextmanager
def _imports_from(folder: Path) -> Iterator[None]:
    """Let blocks import the files that earlier ones wrote, and forget them afterwards."""
    before, path = set(sys.modules), os.environ.get("PATH", "")
    sys.path.insert(0, str(folder))
    # Blocks may start programs too, such as `pegboard serve --stdio`.
    os.environ["PATH"] = _environment()["PATH"]
    try:
        yield
    finally:
        os.environ["PATH"] = path
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            place = getattr(sys.modules[name], "__file__", None)
            if place is not None and Path(place).is_relative_to(folder):
                del sys.modules[name]
