"""The layers hold: what CI runs goes red for an import that points outward, however late, and for a wrong name."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
PYRIGHT = ROOT / "tools/node/node_modules/.bin/pyright"
TYPED_AND_LATE = """
from typing import TYPE_CHECKING

from pegboard.lazy import LazyModule

if TYPE_CHECKING:
    import {module} as late
else:
    late = LazyModule("{module}")
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The package as it stands, to be spoilt."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text(encoding="utf-8") + text, encoding="utf-8")


def run(root: Path, *command: str | Path) -> tuple[int, str]:
    """Run a command of CI in a tree; return its exit code and what it prints."""
    env = {"PYTHONPATH": str(root / "src"), "PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(root)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root, env=env, timeout=300)
    return done.returncode, done.stdout + done.stderr


def test_ci_runs_the_commands_that_are_tried_here() -> None:
    recipes = subprocess.run(
        ["make", "-n", "contracts", "types-src", "gates"], capture_output=True, text=True, check=False, cwd=ROOT
    ).stdout
    for command in ("lint-imports --no-cache", "tools/structure.py", "pyright --pythonpath", "tools/gates.py"):
        assert command in recipes


def test_an_import_that_points_outward_breaks_the_contract_also_where_it_is_late(tree: Path) -> None:
    core = tree / "src/pegboard/core"
    append(core / "names.py", TYPED_AND_LATE.format(module="pegboard.server.app"))
    append(
        core / "unmatched_globs.py",
        "\n\ndef late() -> object:\n    from pegboard.sources import webhook\n\n    return webhook\n",
    )
    append(core / "view.py", TYPED_AND_LATE.format(module="pegboard.core.executor"))
    code, told = run(tree, BIN / "lint-imports", "--no-cache")
    assert code == 1
    for edge in (
        "pegboard.core.names -> pegboard.server.app",
        "pegboard.core.unmatched_globs -> pegboard.sources.webhook",
        "pegboard.core.view -> pegboard.core.executor",
    ):
        assert edge in told
    assert "The layers of the package point inward BROKEN" in told
    assert "The layers of the core point inward BROKEN" in told


@pytest.mark.skipif(not PYRIGHT.exists(), reason="pyright is not installed: make setup")
def test_a_wrong_name_in_the_composition_root_is_a_type_error(tree: Path) -> None:
    root = tree / "src/pegboard/runtime.py"
    late = TYPED_AND_LATE.format(module="pegboard.server.app")
    wrong = f"{late}\nimport pegboard.core.registry as of_core\n\nof_core.NoSuchRegistry\nlate.no_such_app\n"
    root.write_text((root.read_text(encoding="utf-8") if root.exists() else "") + wrong, encoding="utf-8")
    code, told = run(tree, PYRIGHT, "--pythonpath", sys.executable, "src/pegboard/runtime.py")
    assert code == 1, told
    for name in ("NoSuchRegistry", "no_such_app"):
        assert f'"{name}" is not a known attribute of module' in told


def test_a_circle_of_imports_is_found_however_they_are_made(tmp_path: Path) -> None:
    circles = {
        "plain": ("import pegboard.plain_b\n", "import pegboard.plain_a\n"),
        "inner": ("import pegboard.inner_b\n", "def f():\n    from pegboard.inner_a import x\n"),
        "typed": ("import pegboard.typed_b\n", "if TYPE_CHECKING:\n    from pegboard import typed_a\n"),
        "late": ("import pegboard.late_b\n", "late = LazyModule('pegboard.late_a')\n"),
    }
    write(tmp_path, "src/pegboard/__init__.py", "")
    for name, (first, second) in circles.items():
        write(tmp_path, f"src/pegboard/{name}_a.py", first)
        write(tmp_path, f"src/pegboard/{name}_b.py", second)
    code, told = run(tmp_path, sys.executable, ROOT / "tools/structure.py")
    assert code == 1
    *found, _ = told.splitlines()
    assert found == [
        f"a circle of imports: pegboard.{name}_a ⇄ pegboard.{name}_b" for name in ("inner", "late", "plain", "typed")
    ]


def test_a_file_name_that_stands_three_times_is_refused(tmp_path: Path) -> None:
    for folder in ("auth", "cli", "core"):
        write(tmp_path, f"src/pegboard/{folder}/wire.py", "")
    for folder in ("auth", "cli"):
        write(tmp_path, f"src/pegboard/{folder}/twice.py", "")
    code, told = run(tmp_path, sys.executable, ROOT / "tools/structure.py")
    assert (code, told.splitlines()[0]) == (
        1,
        "wire.py stands 3 times: src/pegboard/auth/wire.py, src/pegboard/cli/wire.py, src/pegboard/core/wire.py; "
        "say more in the name",
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TYPED_AND_LATE.format(module="pegboard.core.judge"), "'pegboard.core.judge' late, which is not heavy"),
        ('late = LazyModule("pydantic")\n', "'pydantic' late, untyped"),
        ("late = LazyModule(name)\n", "None late, which is not heavy"),
    ],
)
def test_a_late_import_is_of_a_heavy_module_and_typed(tmp_path: Path, text: str, words: str) -> None:
    write(tmp_path, "src/pegboard/view.py", text)
    code, told = run(tmp_path, sys.executable, ROOT / "tools/gates.py")
    assert (code, len(told.splitlines())) == (1, 2)
    assert f": loads {words};" in told
