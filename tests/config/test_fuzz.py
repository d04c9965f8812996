"""A fuzzer of config files: whatever stands in one, nothing runs or is read that it may not name."""

from __future__ import annotations

import builtins
import io
import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pegboard.config import load_catalog
from pegboard.model.error import DefinitionError
from tests.config.test_refusals import cases
from tests.fuzz.seeds import SOAK_S

IS_SOAK = bool(os.environ.get("PEGBOARD_SOAK"))
SEEDS = 20260721  # of every run in CI
INPUTS = 150
ONE_INPUT_CPU_S = 5.0
LISTED = "allow_imports: [mine]\nenv: [ACME_*]\n"
MINE = """
import os, subprocess
from os import system
import unnamed_too

def f(q: str = "", n: int = 3):
    return True
"""
CORPUS: Sequence[str] = (
    "tools: [{name: a, type: internal, handler: 'python:mine:f'}]",
    "tools:\n  - name: a\n    type: internal\n    handler: python:mine:os.system\n",
    "python: [unnamed, os, mine]\nplugins: [a]\nhooks: [{on: before, use: 'python:mine:system'}]",
    "predicates: {p: {python: 'python:unnamed:f'}, q: {all: [p, {not: q}]}, r: {secret: TOKEN}}",
    "files: [../*, ../outside/*.yaml, '**/*', link, more.yaml]\n",
    f"settings: {{{'k' * 60_000}: 1}}\n",
    f"settings: {{a: 1, b: {'1 a' * 300}a1{'-' * 3_000}, a: 2}}\n",
    f"identity: {{api_keys: {{store: 'sqlite:../outside/{'f' * 300}'}}, map: [{{when: {{key: a}}, profiles: [b]}}]}}\n",
    "settings: {a: '${TOKEN}', b: '${ACME_KEY:-x}', c: '${', d: '$${X}'}\n",
    "base: &b {name: a, type: internal}\ntools: [{<<: *b, handler: 'python:subprocess:run'}]",
    "tools: [{name: s, type: mcp, mcp: {transport: stdio, command: touch, args: [ran], cwd: ..}}]",
    "tools: [{name: a, type: openapi, openapi: {spec: ../outside/secret.yaml}}]",
    "tools: [{name: a, type: webhook, description: d, webhook: {url: 'http://h/{x}', body: '{{ x }}'}}]",
    "tools: [{name: sql_query, type: builtin, config: {connection_string: 'sqlite:///../outside/secret.yaml'}}]",
    "tools: [{name: sql_query, type: builtin, config: {connection_string: 'sqlite://[[/../outside/secret.yaml'}}]",
    "profiles: {chat: {include: [a], deny: ['*'], exposure: auto, rename: {a: b}, limits: {}}}",
    "identity: {api_keys: {store: 'sqlite:../outside/secret.yaml'}, map: [{when: {key: a}, profiles: [chat]}]}",
    "limits: {tool_timeout_s: 5}\nrate_limits: {default: 100/60s}\nmodels: {default: 'openai:x'}",
    "a: &a [*a]\n",
    "x: !!python/object/apply:os.system ['touch ran']\n",
)
PIECES: Sequence[str] = (
    "python:os:system",
    "python:mine:subprocess.run",
    "python:mine:unnamed_too.f",
    "python:unnamed:f",
    "python:mine:f",
    "python:builtins:exec",
    "python:mine:f.__globals__.get",
    "python:posix:system",
    "mine",
    "unnamed",
    "os",
    "../outside/secret.yaml",
    "../outside/*",
    "/etc/passwd",
    "link",
    "more.yaml",
    "**",
    "${TOKEN}",
    "${ACME_KEY}",
    "${TOKEN:-a}",
    "&a ",
    "*a",
    "<<: ",
    "!!python/name:os.system ",
    "!include ",
    "---\n",
    "\n",
    "\t",
    ": ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    "'",
    '"',
    "|\n",
    ">\n",
    "#",
    "~",
    "null",
    "true",
    "1e999",
    "0x" + "f" * 400,
    "\ud7ff",
    "\u2028",
    "\x00",
    "\x85",
    "tools:\n",
    "files: ",
    "handler: ",
    "spec: ",
    "use: ",
    "type: ",
    "name: ",
    "plugins: ",
    "hooks: ",
    "predicates: ",
    "available: ",
    "consent: ",
    "parameters: ",
    "config: ",
    "cwd: ",
    "a" * 3000,
    "[" * 200,
    "{a: " * 70,
)


class Watch:
    """What happened outside while it was on: programs that were started, and the secret file that was opened.

    Not an audit hook: it cannot be removed, and one in Python lets two threads meet inside of `sys.settrace`, which
    then fails in one of them.
    """

    def __init__(self) -> None:
        self.secret = ""
        self.happened: list[str] = []
        self.is_on = False

    def started(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that starts a program, watched."""

        def call(*args: Any, **options: Any) -> Any:
            if self.is_on:
                self.happened.append(f"{real.__name__} {args[:1]}")
            return real(*args, **options)

        return call

    def opened(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that opens a file, watched."""

        def call(file: Any, *args: Any, **options: Any) -> Any:
            if self.is_on and isinstance(file, str | bytes | os.PathLike) and self.secret in os.fsdecode(file):
                self.happened.append(f"opened {file!r}")
            return real(file, *args, **options)

        return call


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch = Watch()
    for name in ("system", "posix_spawn", "posix_spawnp", "fork", "forkpty", "execv", "execve"):
        monkeypatch.setattr(os, name, watch.started(getattr(os, name)))
    monkeypatch.setattr(subprocess, "Popen", watch.started(subprocess.Popen))
    for module, name in ((os, "open"), (io, "open"), (io, "open_code"), (builtins, "open")):
        monkeypatch.setattr(module, name, watch.opened(getattr(module, name)))
    return watch


def test_the_watch_sees_programs_and_the_secret_file(tmp_path: Path, watch: Watch) -> None:
    (tmp_path / "secret").write_text("")
    watch.secret, watch.is_on = str(tmp_path / "secret"), True
    subprocess.run(["true"], check=True)
    (tmp_path / "secret").read_text()
    os.close(os.open(tmp_path / "secret", os.O_RDONLY))
    os.system("true")
    assert [seen.split()[0] for seen in watch.happened] == ["Popen", "opened", "opened", "system"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder, outside = tmp_path / "in", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "secret.yaml").write_text("canary_4711: canary-4711\n")
    (folder / "link").symlink_to(outside / "secret.yaml")
    (folder / "more.yaml").write_text("canary_4712: &a [canary-4712\n")
    (folder / "mine.py").write_text(MINE)
    (folder / "unnamed_too.py").write_text("def f(q=''):\n    return True\n")
    (folder / "unnamed.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    return folder


def inputs(choose: random.Random) -> Iterator[str]:
    """Yield mutated texts without end."""
    base = [*CORPUS, *(text for text, _ in cases("refused_files.txt"))]
    while True:
        text = choose.choice(base)
        for _ in range(choose.randint(1, 6)):
            text = choose.choice(MUTATIONS)(text, choose)
        yield text


def _at(text: str, choose: random.Random) -> int:
    return choose.randint(0, len(text))


MUTATIONS: Sequence[Callable[[str, random.Random], str]] = (
    lambda text, choose: text[: (i := _at(text, choose))] + choose.choice(PIECES) + text[i:],
    lambda text, choose: text[: (i := _at(text, choose))] + text[i + choose.randint(1, 12) :],
    lambda text, choose: text + "\n" + choose.choice(CORPUS),
    lambda text, choose: text[: _at(text, choose)],
    lambda text, choose: text.replace(choose.choice(text.split() or ["a"]), choose.choice(PIECES), 1),
    lambda text, choose: "\n".join(choose.sample(lines := text.splitlines() or [""], len(lines))),
    lambda text, choose: text.replace("'", '"').replace("f", chr(choose.randint(1, 0x2FF)), 1),
)


def check(text: str, folder: Path, watch: Watch) -> None:
    """Load the text as a config, and hold every promise against what happened."""
    path = folder / "pegboard.yaml"
    path.write_bytes((LISTED + text).encode("utf-8", "surrogatepass"))
    watch.secret, watch.happened = str(folder.parent / "outside"), []
    began = time.process_time()
    watch.is_on = True
    try:
        load_catalog(path, env={"TOKEN": "canary-4713", "ACME_KEY": "canary-4714"})
        problems = ()
    except DefinitionError as error:
        problems = error.problems
        assert problems
    finally:
        watch.is_on = False
    assert watch.happened == []
    assert time.process_time() - began < ONE_INPUT_CPU_S
    assert not (folder.parent / "ran").exists()
    for problem in problems:
        assert problem.message
        assert problem.where.startswith(str(folder))
        assert "canary" not in str(problem)


@pytest.mark.parametrize("text", CORPUS)
def test_nothing_of_the_corpus_runs_or_reads_what_it_may_not(text: str, folder: Path, watch: Watch) -> None:
    check(text, folder, watch)


def test_no_mutation_runs_or_reads_what_it_may_not(folder: Path, watch: Watch) -> None:
    texts = inputs(random.Random(SEEDS))
    for number in range(INPUTS):
        text = next(texts)
        try:
            check(text, folder, watch)
        except BaseException:
            print(f"input {number} of seed {SEEDS}: {text!r}")
            raise


@pytest.mark.soak
def test_no_mutation_of_a_fresh_seed_runs_or_reads_what_it_may_not(folder: Path, watch: Watch) -> None:
    seed = random.SystemRandom().randint(0, 2**63)
    texts, ends = inputs(random.Random(seed)), time.monotonic() + SOAK_S
    number = 0
    while time.monotonic() < ends:
        text = next(texts)
        try:
            check(text, folder, watch)
        except BaseException:
            print(f"input {number} of seed {seed}: {text!r}")
            raise
        number += 1
    print(f"{number} inputs of seed {seed} in {SOAK_S:.0f} s")
