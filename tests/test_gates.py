"""The gates catch what they are there for, and the tree passes them."""

import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tools import gates

ROOT = Path(__file__).parent.parent


def write(root: Path, name: str, text: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.soak  # `make test` runs the gates beside the tests
def test_the_tree_has_no_offender() -> None:
    assert gates.offenders(ROOT) == []


@pytest.mark.parametrize("name", ["utils", "helpers", "manager", "data"])
def test_a_file_name_that_says_nothing_is_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path, f"src/pegboard/{name}.py", "")
    assert gates.offenders(tmp_path) == [
        f"src/pegboard/{name}.py:1: {name!r} says nothing; name the file after what it holds"
    ]


def test_the_core_imports_only_what_it_may(tmp_path: Path) -> None:
    text = "import re\nimport orjson\nimport jsonschema_rs\nfrom pegboard.core import model\n\ndef f():\n"
    write(tmp_path, "src/pegboard/core/a.py", text + "    from pydantic.fields import Field\n")
    assert gates.offenders(tmp_path) == ["src/pegboard/core/a.py:7: core imports 'pydantic'; put it behind a port"]


def test_the_mcp_sdk_is_imported_by_the_doors_to_mcp_alone(tmp_path: Path) -> None:
    for name in ("server/mcp.py", "server/mcp_http.py", "server/mcp/sdk.py", "sources/mcp.py", "server/app.py"):
        write(tmp_path, f"src/pegboard/{name}", "import mcp.server\n")
    [offender] = gates.offenders(tmp_path)
    assert offender.startswith("src/pegboard/server/app.py:1: imports 'mcp', which only ")


def test_a_raw_file_call_outside_egress_is_refused_unless_its_line_says_why(tmp_path: Path) -> None:
    text = 'open("a")\npath.read_text()\npath.write_bytes(b"")  # raw: a file of the package\nview.open()\n'
    text += 'path.open("rb")\ncursors.open("a cursor")\n'
    write(tmp_path, "src/pegboard/cli/show.py", text)
    write(tmp_path, "src/pegboard/egress/files.py", text)
    assert gates.offenders(tmp_path) == [
        "src/pegboard/cli/show.py:1: raw open(); open files through pegboard.egress.files",
        "src/pegboard/cli/show.py:2: raw .read_text(); open files through pegboard.egress.files",
        "src/pegboard/cli/show.py:5: raw .open(); open files through pegboard.egress.files",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "await loop.create_connection(make)",
        "loop.sock_connect(opened, place)",
        "asyncio.get_running_loop().subprocess_exec(make)",
        "LazyModule('socket')",
        "LazyModule('http.client')",
        "importlib.import_module('socket')",
        "__import__('subprocess')",
        "from importlib import import_module\nload = import_module",
    ],
)
def test_a_way_out_that_ruff_cannot_see_is_refused_outside_egress(tmp_path: Path, line: str) -> None:
    write(tmp_path, "src/pegboard/cli/show.py", line + "\n")
    write(tmp_path, "src/pegboard/egress/http.py", line)
    offender, *_ = gates.offenders(tmp_path)
    assert offender.startswith(f"src/pegboard/cli/show.py:{line.count(chr(10)) + 1}: ")


def test_every_shared_limit_is_in_use() -> None:
    files = gates.python_files(ROOT, gates.SRC)
    words = Counter(word for path in files for word in re.findall(r"\w+", path.read_text()))
    shared = {
        name
        for path in files
        if path.name == "limits.py"
        for name in re.findall(r"^([A-Z_]+) =", path.read_text(), re.M)
    }
    assert shared, "the rooms have shared limits"
    assert {name for name in shared if words[name] < 3} == set()


def test_a_silenced_check_without_a_reason_is_refused(tmp_path: Path) -> None:
    lines = [
        "a = 1  # no" + "qa: BLE001 - boundary: foreign code",
        "b = 1  # no" + "qa: BLE001",
        "c = 1  # no" + "qa",
        "d = 1  # type: ig" + "nore[assignment]  # the stub is wrong",
        "e = 1  # type: ig" + "nore[assignment]",
        "f = 1  # pragma: no" + " cover: another platform",
        "g = 1  # pragma: no" + " cover",
    ]
    write(tmp_path, "src/pegboard/a.py", "\n".join(lines))
    assert [offender.split(":")[1] for offender in gates.offenders(tmp_path)] == ["2", "3", "5", "7"]


def test_an_index_address_or_a_machine_path_is_refused(tmp_path: Path) -> None:
    slash = "/"
    write(tmp_path, "a.txt", "--index" + "-url https://example.test/simple\n" + "see py" + "pi.org\n")
    write(tmp_path, "b.json", '{"reso' + 'lved": "https://example.test/a.tgz"}\n')
    write(tmp_path, "c.md", f"cd {slash}work/main\n{slash}etc/passwd\nfile in {tmp_path}/c.md\n")
    assert [offender.split(": ")[0] for offender in gates.offenders(tmp_path)] == [
        "a.txt:1",
        "a.txt:2",
        "b.json:1",
        "c.md:1",
        "c.md:3",
    ]


def test_the_command_prints_the_offenders_and_exits_1(tmp_path: Path) -> None:
    write(tmp_path, "src/pegboard/utils.py", "")
    command = [sys.executable, str(ROOT / "tools/gates.py"), str(tmp_path)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout.splitlines()[1:]) == (1, ["1 offenders"])
    (tmp_path / "src/pegboard/utils.py").unlink()
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    "line",
    [
        "import subprocess",
        "import os\n\nos.system('x')",
        "import socket",
        "import httpx2",
        "from urllib.request import urlopen",
        "import asyncio\n\nasyncio.create_subprocess_exec('x')",
        "import asyncio\n\nasyncio.open_unix_connection('x')",
        "import anyio\n\nanyio.run_process('x')",
        "import os\n\nos.fork()",
        "from os import execv",
        "from mcp.client.stdio import stdio_client",
        "from concurrent.futures import ProcessPoolExecutor",
        "import httpcore2",
        "import smtplib",
        "import shutil",
        "import ctypes",
        "import marshal",
    ],
)
def test_ruff_refuses_a_raw_way_out_in_src_but_not_in_egress(line: str) -> None:
    codes = {name: ruff_codes(line, name=name) for name in ("src/pegboard/cli/show.py", "src/pegboard/egress/http.py")}
    assert ("TID251" in codes["src/pegboard/cli/show.py"], "TID251" in codes["src/pegboard/egress/http.py"]) == (
        True,
        False,
    )


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("try:\n    x()\nexcept Exception:\n    pass\n", "BLE001"),
        ("def f() -> None:\n    import json\n\n    json.dumps(1)\n", "PLC0415"),
        ("from . import model\n", "TID252"),
        ("eval('1')\n", "S307"),
        ("def public(x):\n    return x\n", "D103"),
    ],
)
def test_ruff_refuses_what_the_house_style_bans(text: str, code: str) -> None:
    assert code in ruff_codes(text, name="src/pegboard/core/registry.py")


def ruff_codes(text: str, *, name: str) -> set[str]:
    ruff = Path(sys.executable).with_name("ruff")
    command = [ruff, "check", "--no-cache", "--output-format=concise", f"--stdin-filename={name}", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, cwd=ROOT)
    return {line.split()[1] for line in done.stdout.splitlines() if line.startswith(name)}


def test_import_linter_refuses_an_import_that_points_outward(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    write(tmp_path, "src/pegboard/__init__.py", "")
    for package in ("core", "model", "providers", "sources", "authoring", "discovery", "discovery/search", "adapters"):
        write(tmp_path, f"src/pegboard/{package}/__init__.py", "")
    for name in ("context", "tool"):
        write(tmp_path, f"src/pegboard/model/{name}.py", "")
    for name in ("executor", "call", "view", "registry", "predicates"):
        write(tmp_path, f"src/pegboard/core/{name}.py", "")
    write(tmp_path, "src/pegboard/core/judge.py", "import pegboard.core.view\n")
    write(tmp_path, "src/pegboard/model/error.py", "import pegboard.core.judge\n")
    write(tmp_path, "src/pegboard/providers/openai.py", "import pegboard.providers.gemini\n")
    for name in ("gemini", "mcp", "anthropic"):
        write(tmp_path, f"src/pegboard/providers/{name}.py", "")
    write(tmp_path, "src/pegboard/sources/webhook.py", "import pegboard.sources.client\nimport pegboard\n")
    write(tmp_path, "src/pegboard/sources/client.py", "")
    for package in ("discovery", "discovery/search"):
        write(tmp_path, f"src/pegboard/{package}/__init__.py", "")
    for name in ("context", "tool"):
        write(tmp_path, f"src/pegboard/model/{name}.py", "")
    write(tmp_path, "src/pegboard/discovery/finder.py", "")
    write(tmp_path, "src/pegboard/discovery/search/ranking.py", "import pegboard.core.view\n")
    write(tmp_path, "src/pegboard/discovery/search/index.py", "import pegboard.discovery.finder\n")
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    env = {"PYTHONPATH": str(tmp_path / "src"), "PATH": ""}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=env)
    broken = {line.removesuffix(" BROKEN") for line in done.stdout.splitlines() if line.endswith(" BROKEN")}
    assert (done.returncode, broken) == (
        1,
        {
            "The layers of the core point inward",
            "The layers of the package point inward",
            "The layers of discovery point inward",
            "The search engine knows neither views nor callers",
            "Exports and adapters do not know each other",
            "Kinds of tools do not know each other",
            "No module imports the public facade it is part of",
        },
    )


def locked(name: str) -> dict[str, str]:
    """Return the requirement lines of a lock file by package and marker."""
    lines = (ROOT / "requirements" / name).read_text(encoding="utf-8").splitlines()
    pins = [line.removesuffix("\\").strip() for line in lines if "==" in line.partition(";")[0] and line[0].isalpha()]
    return {f"{pin.partition('==')[0]};{pin.partition(';')[2]}": pin for pin in pins}


@pytest.mark.parametrize("name", ["run.txt", "dev.txt", "bench.txt", "e2e.txt"])
def test_every_line_of_a_lock_is_a_pin_with_hashes_and_nothing_else(name: str) -> None:
    lines = (ROOT / "requirements" / name).read_text(encoding="utf-8").splitlines()
    # Built of its sources, since its wheels hold a program of 380 MB besides.
    lines = [line for line in lines if line.strip() and line != "--no-binary claude-agent-sdk"]
    lines = [line for line in lines if not line.lstrip().startswith("#")]
    assert all(line[0].isalpha() or line.startswith("    --hash=sha256:") for line in lines)
    assert all("==" in line and line.endswith("\\") and "+" not in line for line in lines if line[0].isalpha())


def test_what_runs_is_what_is_tested() -> None:
    tested = set(locked("dev.txt").values())
    # A pin without a marker covers every platform: the tests need uvicorn everywhere, the MCP SDK not on Emscripten.
    assert {pin for pin in locked("run.txt").values() if not {pin, pin.partition(";")[0].strip()} & tested} == set()
