"""The shared file cases, through read_file and write_file. Named after their ids; the observer is the disk itself."""

import hashlib
import os
import socket
import time
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from pegboard import Catalog, DefinitionError, ToolContext, ToolError
from pegboard.config import load_catalog
from pegboard.sources.builtin.builtins import builtin_entry
from pegboard.sources.builtin.kind import Services
from tests.builtin.parts import Shelf
from tests.timing import is_within

CANARY = "CANARY-5f1c"


@pytest.fixture
def tools(tmp_path: Path) -> Shelf:
    """Both tools on `data`; beside it lie things that nobody may touch."""
    root = tmp_path / "data"
    root.mkdir()
    (root / "inside.txt").write_text("inside")
    (root / "folder").mkdir()
    (tmp_path / "data_secret").mkdir()
    (tmp_path / "data_secret" / "k").write_text(CANARY)
    (tmp_path / "k").write_text(CANARY)
    shelf = Shelf(services=Services(folder=tmp_path))
    return shelf.put("read_file", {"roots": ["data"]}).put("write_file", {"roots": ["data"]})


def fingerprint(folder: Path) -> dict[str, str]:
    """Everything below a folder: what it is, and its content."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        kind = "link" if path.is_symlink() else "folder" if path.is_dir() else "file" if path.is_file() else "special"
        found[str(path.relative_to(folder))] = kind + (
            hashlib.sha256(path.read_bytes()).hexdigest() if kind == "file" else ""
        )
    return found


async def refused(tools: Shelf, path: str, folder: Path) -> list[ToolError]:
    """Reading and writing this path are refused quickly; nothing on the disk changes and nothing leaks."""
    before = fingerprint(folder)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("read_file", {"path": path}),
        *(
            ("write_file", {"path": path, "content": "owned", "mode": mode})
            for mode in ("overwrite", "append", "create")
        ),
    ]
    errors: list[ToolError] = []
    for name, args in calls:
        started = time.monotonic()
        error = await tools.error(name, args)
        assert is_within(time.monotonic() - started, 1)
        assert error.kind == "invalid_arguments", error
        assert CANARY not in str(error)
        assert str(folder) not in error.message.replace(path, "")
        errors.append(error)
    assert fingerprint(folder) == before
    return errors


async def time_of(tools: Shelf, path: str) -> float:
    started = time.monotonic()
    await tools.error("read_file", {"path": path})
    await tools.error("write_file", {"path": path, "content": "owned"})
    return (time.monotonic() - started) / 2


@pytest.mark.parametrize("config", [{}, {"roots": []}, {"roots": [""]}, {"roots": None}])
def test_file_01_a_root_is_required(config: dict[str, Any]) -> None:
    for name in ("read_file", "write_file"):
        with pytest.raises(DefinitionError, match="roots"):
            builtin_entry(name, config=config)


@pytest.mark.parametrize(
    "path",
    [
        "../k",
        "../../etc/passwd",
        "folder/../../k",
        "./../k",
        "folder/../inside.txt",
        "/../k",
        "folder/../..",
        "..",
        ".",
        "",
    ],
)
async def test_file_02_dotdot_leads_nowhere(tools: Shelf, tmp_path: Path, path: str) -> None:
    await refused(tools, path, tmp_path)


@pytest.mark.parametrize("path", ["....//k", "%2e%2e/k", "..\\k", "..%2fk", "..\\..\\k"])
async def test_file_02_other_spellings_are_plain_names_that_are_not_there(
    tools: Shelf, tmp_path: Path, path: str
) -> None:
    before = fingerprint(tmp_path)
    error = await tools.error("read_file", {"path": path})
    assert error.kind == "invalid_arguments"
    await tools.call("write_file", {"path": path, "content": "x"})
    outside = {name: mark for name, mark in fingerprint(tmp_path).items() if not name.startswith("data/")}
    assert outside == {name: mark for name, mark in before.items() if not name.startswith("data/")}


async def test_file_03_a_sibling_with_the_same_prefix_is_outside(tools: Shelf, tmp_path: Path) -> None:
    for path in ("../data_secret/k", f"{tmp_path}/data_secret/k", "_secret/k", f"{tmp_path}/data/../data_secret/k"):
        await refused(tools, path, tmp_path)


async def test_file_04_absolute_paths_and_home_are_outside(tools: Shelf, tmp_path: Path) -> None:
    for path in ("/etc/passwd", "~/.ssh/id_rsa", "$HOME/x", "file:///etc/passwd", "//etc/passwd", f"{tmp_path}/k"):
        await refused(tools, path, tmp_path)
    inside = await tools.value("read_file", {"path": f"{tmp_path}/data/inside.txt"})
    assert (inside["content"], inside["path"]) == ("inside", "inside.txt")


async def test_file_07_special_files_are_refused_without_waiting(tools: Shelf, tmp_path: Path) -> None:
    root = tmp_path / "data"
    os.mkfifo(root / "fifo")
    # Bound by a short path: a socket's address has room for 108 bytes.
    here = Path.cwd()
    os.chdir(root)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("socket")
            for path in ("fifo", "socket", "folder", "/dev/zero", "/proc/self/environ", "/dev/stdin", "/dev/fd/0"):
                await refused(tools, path, tmp_path)
                # The best of three: the machine has other things to do too.
                assert is_within(min([await time_of(tools, path) for _ in range(3)]), 0.1)
    finally:
        os.chdir(here)


async def test_file_07_symlinks_are_never_followed(tools: Shelf, tmp_path: Path) -> None:
    root = tmp_path / "data"
    (root / "to_file").symlink_to(tmp_path / "k")
    (root / "to_folder").symlink_to(tmp_path / "data_secret")
    (root / "to_device").symlink_to("/dev/zero")
    (root / "loop").symlink_to(root / "loop")
    (root / "inward").symlink_to(root / "inside.txt")
    for path in ("to_file", "to_folder/k", "to_folder/new", "to_device", "loop", "inward"):
        await refused(tools, path, tmp_path)


async def test_file_09_writes_stay_off_hidden_names_folders_and_full_quotas(tools: Shelf, tmp_path: Path) -> None:
    root = tmp_path / "data"
    (root / ".git" / "hooks").mkdir(parents=True)
    before = fingerprint(tmp_path)
    for path in (".git/hooks/pre-commit", ".env", "folder/.profile", "folder", "missing/parent.txt", "../made/x.txt"):
        for mode in ("overwrite", "append", "create"):
            error = await tools.error("write_file", {"path": path, "content": "owned", "mode": mode})
            assert error.kind == "invalid_arguments"
    tools.catalog.register(
        builtin_entry(
            "write_file",
            config={"roots": ["data"], "max_bytes": 10},
            as_name="small",
            services=Services(folder=tmp_path),
        )
    )
    assert (await tools.error("small", {"path": "big.txt", "content": "x" * 11})).kind == "invalid_arguments"
    assert fingerprint(tmp_path) == before
    await tools.value("small", {"path": "ten.txt", "content": "x" * 6})
    assert (
        await tools.error("small", {"path": "ten.txt", "content": "y" * 5, "mode": "append"})
    ).kind == "invalid_arguments"
    assert (root / "ten.txt").read_text() == "x" * 6


async def test_file_09_a_hard_link_is_replaced_and_not_written_through(tools: Shelf, tmp_path: Path) -> None:
    for mode in ("overwrite", "append"):
        os.link(tmp_path / "k", tmp_path / "data" / mode)
    await tools.value("write_file", {"path": "overwrite", "content": "owned", "mode": "overwrite"})
    # To add to it would copy what another name of it holds to where it may be read.
    error = await tools.error("write_file", {"path": "append", "content": "owned", "mode": "append"})
    assert "hard_links: true" in error.message
    assert (tmp_path / "k").read_text() == CANARY


async def test_file_02_a_name_that_cannot_be_told_is_not_written(tools: Shelf, tmp_path: Path) -> None:
    await refused(tools, "a\udcff", tmp_path)
    await refused(tools, "a\ud800", tmp_path)


async def test_file_10_a_write_that_fails_half_way_leaves_the_old_content(tools: Shelf, tmp_path: Path) -> None:
    """A full disk; that a killed writer leaves no part behind is shown in tests/egress/test_files.py."""
    import resource
    import signal

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    heard = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        error = await tools.error("write_file", {"path": "inside.txt", "content": "z" * 200_000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, heard)
    assert (error.kind, error.retryable) == ("storage_unavailable", True)
    assert (tmp_path / "data" / "inside.txt").read_text() == "inside"
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["folder", "inside.txt"]


async def test_a_file_is_read_in_parts_and_written_whole(tools: Shelf, tmp_path: Path) -> None:
    written = await tools.value("write_file", {"path": "folder/a.txt", "content": "äöü" * 4, "mode": "create"})
    assert written == {"path": "folder/a.txt", "bytes_written": 24, "size": 24}
    first = await tools.value("read_file", {"path": "folder/a.txt", "max_chars": 5})
    assert first == {"content": "äöüäö", "path": "folder/a.txt", "size": 24, "truncated": True, "next_start": 5}
    rest = await tools.value("read_file", {"path": "folder/a.txt", "start": 5})
    assert first["content"] + rest["content"] == "äöü" * 4
    assert rest["next_start"] is None
    again = await tools.error("write_file", {"path": "folder/a.txt", "content": "x", "mode": "create"})
    assert "exists already" in again.message
    more = await tools.value("write_file", {"path": "folder/a.txt", "content": "!", "mode": "append"})
    assert more["size"] == 25


@pytest.mark.parametrize("place", ["inside.txt", "folder/deep.txt"])
async def test_a_file_with_several_names_is_read_only_where_the_config_says_so(
    tools: Shelf, tmp_path: Path, place: str
) -> None:
    (tmp_path / "data" / place).unlink(missing_ok=True)
    os.link(tmp_path / "data_secret" / "k", tmp_path / "data" / place)
    for name, args in (("read_file", {}), ("write_file", {"content": "+", "mode": "append"})):
        error = await tools.error(name, {"path": place, **args})
        assert (error.kind, "hard_links: true" in error.message) == ("invalid_arguments", True)
        assert CANARY not in str(error)
    assert (tmp_path / "data_secret" / "k").read_text() == CANARY
    open_tools = Shelf(services=Services(folder=tmp_path)).put("read_file", {"roots": ["data"], "hard_links": True})
    assert (await open_tools.value("read_file", {"path": place}))["content"] == CANARY


SHIFTED = (
    "utf-7 UTF7 unicode-1-1-utf-7 u7 hz hzgb iso2022_jp iso-2022-kr csISO2022JP rot13 cp037 EBCDIC-CP-BE cp424 cp500 "
    "cp875 cp1026 cp1140 cp273 cp864 shift_jis_2004 shift_jisx0213 mac-arabic mac-farsi"
)


@pytest.mark.parametrize("encoding", SHIFTED.split())
async def test_an_encoding_in_which_plain_letters_mean_others_is_refused(
    tools: Shelf, tmp_path: Path, encoding: str
) -> None:
    (tmp_path / "data" / "inside.txt").write_bytes(b"+ADw-script+AD4-")
    before = fingerprint(tmp_path)
    for name, args in (("read_file", {}), ("write_file", {"content": "<script>"})):
        error = await tools.error(name, {"path": "inside.txt", "encoding": encoding, **args})
        assert (error.kind, "is unknown" in error.message) == ("invalid_arguments", True)
    assert fingerprint(tmp_path) == before
    for fine in ("utf-8", "utf-8-sig", "latin-1", "cp1252", "shift_jis", "gb18030", "big5", "koi8-r"):
        assert "content" in await tools.value("read_file", {"path": "inside.txt", "encoding": fine})
    for wide in ("utf-16", "utf-32-be"):
        (tmp_path / "data" / "inside.txt").write_text("größe", encoding=wide)
        assert (await tools.value("read_file", {"path": "inside.txt", "encoding": wide}))["content"] == "größe"


@pytest.fixture
def served(tmp_path: Path) -> tuple[Catalog, Path]:
    """A config whose own folder may be written, with one of each thing that decides what runs."""
    for folder in ("more", "skill", "package", "apis", "bin"):
        (tmp_path / folder).mkdir()
    (tmp_path / "handlers.py").write_text("def one() -> int:\n    return 1\n")
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "inner.py").write_text("def two() -> int:\n    return 2\n")
    (tmp_path / "more" / "a.yaml").write_text("tools: []\n")
    (tmp_path / "skill" / "SKILL.md").write_text("---\nname: up\ndescription: How.\n---\nHow.\n")
    (tmp_path / "bin" / "server").write_text("#!/bin/sh\n")
    (tmp_path / "notes.txt").write_text("notes")
    real = tmp_path / "real.yaml"
    real.write_text(
        "files: ['more/**/*.yaml']\n"
        "tools:\n"
        "  - {name: write_file, type: builtin, config: {roots: ['.']}}\n"
        "  - {name: write_file, type: builtin, as: anywhere, config: {roots: ['..']}}\n"
        "  - {name: two, type: internal, handler: 'python:package.inner:two'}\n"
        "  - {name: up, type: mcp, mcp: {transport: stdio, cwd: ., command: sh, args: [bin/server], start: lazy}}\n"
        "  - {name: by_m, type: mcp, mcp: {transport: stdio, cwd: ., command: sh, args: [-m, apis.run], start: lazy}}\n"
        "skills: {up: skill}\n"
        "consents: {store: 'sqlite:./answers.db'}\n"
        "agents: {store: 'sqlite:talks.db'}\n"
        "identity: {api_keys: {store: 'sqlite:///keys.db'}, map: [{when: {key: k}, user: ann}]}\n"
    )
    (tmp_path / "pegboard.yaml").symlink_to(real)
    return load_catalog(tmp_path / "pegboard.yaml", env={})[0], tmp_path


DECIDING = (
    "pegboard.yaml real.yaml ./Real.YAML pegboard.lock more/a.yaml more/new.yaml more/deep/new.yaml handlers.py new.py "
    "package/inner.py package/new.py package/__pycache__/inner.cpython-311.pyc skill/SKILL.md skill/new.md bin/server "
    "apis/__init__.py apis/run.py "
    "answers.db answers.db-wal talks.db keys.db keys.db-journal"
)


async def test_no_tool_writes_a_file_that_decides_what_runs_here(served: tuple[Catalog, Path]) -> None:
    catalog, folder = served
    for place in ("more/deep", "package/__pycache__"):
        (folder / place).mkdir(exist_ok=True)
    view = catalog.view(ToolContext(budget=None))
    before = fingerprint(folder)
    written: list[str] = []
    for name, mode in product(DECIDING.split(), ("overwrite", "append", "create")):
        for tool, path in (
            ("write_file", name),
            ("anywhere", f"{folder.name}/{name}"),
            ("anywhere", f"{folder}/{name}"),
        ):
            result = await view.call(tool, {"path": path, "content": "tools: []\n", "mode": mode})
            written += [path] if result.error is None or result.error.kind != "invalid_arguments" else []
    assert written == []
    assert fingerprint(folder) == before


async def test_what_decides_nothing_is_written_beside_it(served: tuple[Catalog, Path]) -> None:
    catalog, folder = served
    view = catalog.view(ToolContext(budget=None))
    for name in ("notes.txt", "new.yaml", "more/notes.md", "bin/other", "apis/new.py", "answers.txt"):
        result = await view.call("write_file", {"path": name, "content": "new"})
        assert (name, result.error) == (name, None)
        assert (folder / name).read_text() == "new"
