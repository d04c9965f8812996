"""What a page names is there: every file and folder that the pages for contributors speak of exists."""

import re
import tomllib
from pathlib import Path

import pytest

from pegboard.config.unsupported import UNSUPPORTED

ROOT = Path(__file__).parents[2]
NAMES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/explanation/architecture.md", "docs/explanation/why.md")
PAGES = [ROOT / name for name in NAMES]
# A path in back quotes has a slash, or is a file of Python or of the project itself; `<name>` stands for anything.
_PATH = re.compile(r"`([\w.<>*-]+(?:/[\w.<>*-]*)+|[\w<>-]+\.(?:py|md|toml))`")
_TREE = re.compile(r"^## The folders$.*?^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Of MCP or of its `_meta`, and no paths.
_METHODS = ("tools/call", "tools/list", "pegboard/hops")
# Below which a page may leave out the beginning of a path.
_ROOTS = (ROOT, ROOT / "src" / "pegboard")


def paths_of(text: str) -> list[str]:
    """Return the paths that a page names in back quotes or draws as a tree of folders."""
    drawn = [line.split()[0] for tree in _TREE.findall(text) for line in tree.splitlines() if line.strip()]
    return [path for path in (*_PATH.findall(text), *drawn) if "<" not in path and path not in _METHODS]


def is_there(path: str) -> bool:
    """Tell whether a path, which may have `*` in it, names something in the repository."""
    return any(any(root.glob(path.rstrip("/"))) for root in _ROOTS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_and_folder_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    written = set(re.findall(r"title=(\S+)", text))

    assert [path for path in paths_of(text) if path not in written and not is_there(path)] == []


def test_every_folder_of_the_package_is_drawn_in_the_architecture() -> None:
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    drawn = {path.rstrip("/") for path in paths_of(text)}
    package = ROOT / "src" / "pegboard"
    folders = {path.parent.relative_to(package).as_posix() for path in package.glob("*/__init__.py")}

    assert folders <= drawn


def layers() -> list[list[str]]:
    """Return the layers of the contract, lowest first, as far as they exist."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    contracts = project["importlinter"]["contracts"]
    declared = next(contract["layers"] for contract in contracts if contract["id"] == "layers")
    package = ROOT / "src" / "pegboard"
    named = [re.findall(r"\w+", layer) for layer in reversed(declared)]
    return [
        [name for name in layer if (package / name).is_dir() or (package / f"{name}.py").exists()] for layer in named
    ]


def test_the_architecture_draws_the_layers_of_the_contract_from_both_ends() -> None:
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    picture = re.search(r"^flowchart TB$.*?^```$", text, re.MULTILINE | re.DOTALL)
    assert picture is not None
    boxes = [re.findall(r"\w+", label) for label in re.findall(r'\["([^"]+)"\]', picture[0])]
    place = {name: height for height, layer in enumerate(layers()) for name in layer}
    not_drawn = {"serve", "library", "frozen", "extras", "lazy", "version", "platforms"}

    assert {name for box in boxes for name in box} == set(place) - not_drawn
    assert all(len({place[name] for name in box}) == 1 for box in boxes)
    heights = [place[box[0]] for box in boxes]
    assert heights == sorted(heights, reverse=True)
    tree = _TREE.findall(text)[0].splitlines()
    from_below = [place[re.split(r"[/.]", line)[0]] for line in tree]
    assert from_below == sorted(from_below)


def test_every_file_of_security_tests_stands_beside_a_promise() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests" / "security").glob("test_*.py")}

    assert files - set(paths_of(text)) == set()


def test_a_path_that_is_not_there_is_found() -> None:
    assert paths_of("see `core/judge.py`, `a/b`, `name` and `sources/<kind>.py`") == ["core/judge.py", "a/b"]
    assert [is_there(path) for path in ("core/judge.py", "tests/", "a/b")] == [True, True, False]


def test_the_page_on_speed_names_every_figure_that_is_not_held() -> None:
    rows = (ROOT / "bench" / "RESULTS.md").read_text(encoding="utf-8").splitlines()
    short = {row.split("|")[1].strip() for row in rows if row.rstrip().endswith("| short |")}
    page = (ROOT / "docs" / "explanation" / "speed.md").read_text(encoding="utf-8")
    missed = page.partition("misses three of its goals at present:")[2].partition("\n## ")[0]
    admitted = set(re.findall(r"`([^`]+)`", missed))

    assert admitted == short


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"(?:`|^)make ([\w-]+)", page.read_text("utf-8"), re.M)}

    assert {"setup", "test", "demo", "bench"} <= named
    assert named <= targets


def test_what_the_comparison_says_is_refused_is_refused_and_the_sections_and_kinds_are_all_of_them() -> None:
    lines = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8").splitlines()
    line = next(line for line in lines if line.startswith("Not yet supported: "))
    keys = [re.sub(r"^type: ", "tools.*.type=", name).rstrip(":") for name in re.findall(r"`([^`]+)`", line)]
    said = {{"task": "tools.*.task"}.get(key, key) for key in keys}

    assert said <= set(UNSUPPORTED)
    of_agent_files = {"apiVersion", "kind", "metadata", "spec"}
    assert {key for key in UNSUPPORTED if "." not in key or key.startswith("tools.*.type=")} - of_agent_files <= said
