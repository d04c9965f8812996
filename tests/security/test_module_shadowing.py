"""A file in the config's folder, the working directory or on PYTHONPATH replaces no installed module."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from pegboard import ToolContext
from pegboard.config import warnings
from pegboard.config.reload import Reloader
from tests.config.project import Project

PEGBOARD = Path(sys.executable).with_name("pegboard")
MINE = """
from pegboard import default_catalog
import acme_installed

@default_catalog.tool
def whose() -> str:
    '''Say whose module was imported.'''
    return acme_installed.OWNER
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages, the last on `sys.path`, with one module and one package."""
    site = tmp_path / "site"
    (site / "acme_package").mkdir(parents=True)
    (site / "acme_installed.py").write_text("OWNER = 'installed'\n")
    (site / "acme_package" / "__init__.py").write_text("OWNER = 'installed'\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])
    yield site
    for name in [name for name in sys.modules if name.startswith("acme_")]:
        del sys.modules[name]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    folder = tmp_path / "project"
    folder.mkdir()
    return Project(folder).write("python: [mine]", mine=MINE, acme_installed="OWNER = 'beside'\n")


@pytest.mark.parametrize("entry", ["", ".", "absolute", "none"])
async def test_a_module_in_the_folder_of_the_config_replaces_no_installed_one(
    project: Project, installed: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    monkeypatch.chdir(project.folder)
    if entry != "none":
        entry = str(project.folder) if entry == "absolute" else entry
        monkeypatch.setattr(sys, "path", [sys.path[0], entry, *sys.path[1:]])
    before = [*sys.path]
    assert (await project.view().call("whose")).text == "installed"
    assert sys.path == before


async def test_a_package_in_the_folder_replaces_no_installed_one(project: Project, installed: Path) -> None:
    project.file("acme_package/__init__.py", "OWNER = 'beside'\n")
    project.write("python: [mine]", mine=MINE.replace("acme_installed", "acme_package"))
    assert (await project.view().call("whose")).text == "installed"


async def test_a_module_that_appears_before_a_reload_replaces_none_either(project: Project, installed: Path) -> None:
    (project.folder / "acme_installed.py").unlink()
    catalog, config = project.load()
    reloader = Reloader(project.path, {}, catalog, config=config)
    project.file("acme_installed.py", "OWNER = 'beside'\n")
    sys.modules.pop("acme_installed")
    project.file("mine.py", MINE.replace("whose", "who"))
    assert await reloader.reload()
    assert (await catalog.view(ToolContext()).call("who")).text == "installed"


def test_a_module_that_is_hidden_is_refused_where_it_is_named_and_else_a_warning(
    project: Project, installed: Path
) -> None:
    catalog, config = project.load()
    (said,) = [problem.message for problem in warnings(config, catalog) if "never imported" in problem.message]
    assert "'acme_installed'" in said
    assert str(installed / "acme_installed.py") in said
    assert "Rename yours" in said
    project.write("python: [acme_installed]")
    (said,) = project.said()
    assert said.startswith("pegboard.yaml:1:10: python[0]: the module 'acme_installed' in the folder of this config is")


async def test_modules_that_nobody_else_has_are_imported_from_the_folder(project: Project, installed: Path) -> None:
    (installed / "acme_notes").mkdir()  # a folder without modules is not a package
    project.file("acme_notes.py", "OWNER = 'beside'\n")
    project.write("python: [mine]", mine=MINE.replace("acme_installed", "acme_notes"))
    assert (await project.view().call("whose")).text == "beside"


@pytest.mark.parametrize("python_path", [None, ".", os.pathsep, "{folder}"])
@pytest.mark.parametrize("words", [["check"], ["call", "whose", "--json"]])
def test_the_command_runs_no_file_that_is_called_like_a_package_of_its_own(
    project: Project, python_path: str | None, words: list[str]
) -> None:
    project.write(
        "python: [mine]",
        mine=MINE.replace(
            "import acme_installed", "import yaml as acme_installed; acme_installed.OWNER = acme_installed.__file__"
        ),
    )
    for name in ("yaml", "msgspec", "orjson", "cyclopts", "pydantic", "jsonschema_rs", "mcp", "rich", "pegboard"):
        project.file(f"{name}.py", f"open('proof-{name}', 'w').close()\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if python_path is not None:
        environment["PYTHONPATH"] = python_path.format(folder=project.folder)
    ran = subprocess.run(
        [PEGBOARD, *words], cwd=project.folder, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert not list(project.folder.glob("proof-*"))
    if words[0] == "call":
        assert "site-packages" in orjson.loads(ran.stdout)["content"][0]["text"]
    else:
        assert "'yaml' in the folder of this config is never imported" in ran.stdout + ran.stderr


@pytest.mark.parametrize("python_path", [None, "{folder}"])
def test_a_module_of_langchain_is_imported_after_installed_ones_too(project: Project, python_path: str | None) -> None:
    project.write("tools: []").file("yaml.py", "open('proof', 'w').close()\nEVERY = []\n")
    project.file("chain.py", "import yaml\n\nEVERY = [yaml.__file__]\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if python_path is not None:
        environment["PYTHONPATH"] = python_path.format(folder=project.folder)
    for reference, said in (("chain:EVERY", "site-packages"), ("yaml:EVERY", "is never imported")):
        ran = subprocess.run(
            [PEGBOARD, "import", "--yes", reference], cwd=project.folder, env=environment, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        assert ran.returncode != 0
        assert said in ran.stderr, ran.stderr
    assert not (project.folder / "proof").exists()
