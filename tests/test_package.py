"""What is shipped: our package alone, built without a network, and nothing that runs by itself (UI-06)."""

from __future__ import annotations

import json
import re
import socket
import tarfile
import tomllib
import zipfile
from configparser import ConfigParser
from hashlib import sha256
from pathlib import Path

import pytest
import yaml
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from tools.sbom import bill_of_materials

ROOT = Path(__file__).parents[1]


def test_ui_06_a_wheel_of_the_sources_holds_our_package_alone_and_takes_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached: list[object] = []
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: reached.append(address))
    [sdist] = SdistBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with tarfile.open(sdist) as sources:
        sources.extractall(tmp_path, filter="data")
    [unpacked] = [path for path in tmp_path.iterdir() if path.is_dir()]
    [built] = WheelBuilder(str(unpacked)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(built) as wheel:
        names = wheel.namelist()
        [entries] = [name for name in names if name.endswith("entry_points.txt")]
        text = wheel.read(entries).decode()
    tops = {name.partition("/")[0] for name in names}
    # The console reads these files at its first request.
    folder = ROOT / "src/pegboard/server/console"
    pages = {
        path.relative_to(ROOT / "src").as_posix()
        for kind in ("templates", "static")
        for path in (folder / kind).iterdir()
    }
    assert pages <= set(names)
    assert len(pages) >= 10
    assert {top for top in tops if not top.endswith(".dist-info")} == {"pegboard", "pegboard_command.py"}
    assert not [name for name in names if Path(name).suffix in (".pth", ".so", ".pyc", ".exe") or ".." in name]
    declared = ConfigParser()
    declared.read_string(text)
    # No plugin loads by being installed: a config names those that do.
    assert {name: dict(declared[name]) for name in declared.sections()} == {
        "console_scripts": {"pegboard": "pegboard_command:main"}
    }
    assert reached == []


def test_ui_06_what_the_package_needs_is_published_with_version_and_hashes(tmp_path: Path) -> None:
    shipped = tmp_path / "pegboard-1.whl"
    shipped.write_bytes(b"wheel")
    bill = json.loads(json.dumps(bill_of_materials(ROOT / "requirements/run.txt", shipped, version="1")))
    pins = [line for line in (ROOT / "requirements/run.txt").read_text().splitlines() if "==" in line]
    parts = {f"{part['name']}=={part['version']}": part for part in bill["components"]}
    assert (bill["bomFormat"], len(parts)) == ("CycloneDX", len(pins))
    assert {pin.split(";")[0].rstrip(" \\").strip() for pin in pins} == parts.keys()
    assert all(part["hashes"] and part["purl"].startswith("pkg:pypi/") for part in parts.values())
    assert [one["content"] for one in bill["metadata"]["component"]["hashes"]] == [sha256(b"wheel").hexdigest()]


def test_the_workflows_run_targets_of_the_makefile_with_no_more_rights_than_they_name() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    workflows = {path.name: yaml.safe_load(path.read_text()) for path in (ROOT / ".github/workflows").glob("*.yml")}
    jobs = {name: (workflow, job) for workflow in workflows.values() for name, job in workflow["jobs"].items()}
    steps = [step for _, job in jobs.values() for step in job["steps"]]
    runs = [word for step in steps for word in re.findall(r"\bmake ([a-z-]+)", step.get("run", ""))]
    assert sorted(runs) == ["release", "release", "test"]
    assert set(runs) <= targets
    assert {name: job.get("permissions", workflow["permissions"]) for name, (workflow, job) in jobs.items()} == {
        "test": {"contents": "read"},
        "release": {"contents": "read"},
        "build": {"contents": "read", "id-token": "write", "attestations": "write"},
        "publish": {"id-token": "write"},
        "attach": {"contents": "write"},
    }
    # What others write, such as the title of a pull request, never becomes part of a command.
    assert not [step for step in steps if "${{" in step.get("run", "")]


def test_the_pythons_that_are_tested_are_those_that_the_package_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == named == ["3.11", "3.12", "3.13", "3.14"]
