"""Live documents: `pegboard serve` keeps the sources of the config in step, and says how that goes."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

import httpx2
import orjson
import pytest

from tests import forking
from tests.server.processes import serving
from tests.timing import PATIENCE_S
from tests.workspace.library import files

PAGES = {f"{number}.txt": f"page {number}" for number in range(4)}
CONFIG = """\
name: acme
workspace:
  store: "sqlite:./documents.db"
  space: s1
  sources:
    - {path: ./handbook, space: s1}
profiles: {chat: {include: [navigation, search, document]}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pegboard.yaml").write_text(CONFIG)
    files(tmp_path / "handbook", PAGES)
    return tmp_path


async def metrics(url: str) -> dict[str, float]:
    """Return the metrics of live sources, by name and source."""
    async with httpx2.AsyncClient() as client:
        text = (await client.get(f"{url}/metrics")).text
    rows = re.findall(r'^(pegboard_documents\w*)\{source="([^"]*)",space="s1"\} (\S+)$', text, re.MULTILINE)
    return {f"{name} {source}": float(value) for name, source, value in rows}


async def until(url: str, **wanted: float) -> dict[str, float]:
    names = {f"pegboard_{name.replace('__', ' ')}": value for name, value in wanted.items()}
    found: dict[str, float] = {}
    async with asyncio.timeout(PATIENCE_S):
        while {name: found.get(name) for name in names} != names:
            await asyncio.sleep(0.1)
            found = await metrics(url)
    return found


def doctor(folder: Path) -> dict[str, tuple[str, str]]:
    done = forking.run(["pegboard", "doctor", "--json"], cwd=folder, timeout_s=PATIENCE_S)
    found = orjson.loads(done.stdout)["findings"]
    return {row["name"]: (row["state"], row["detail"]) for row in found if row["kind"] == "documents"}


async def test_workers_keep_a_folder_in_step_and_its_state_is_in_metrics_and_doctor(project: Path) -> None:
    async with serving(project, "--workers", "2") as server:
        found = await until(server.url, documents__handbook=4.0, documents_up__handbook=1.0)
        assert found["pegboard_documents_synced_timestamp_seconds handbook"] > 1_700_000_000
        files(project / "handbook", {"new.txt": "a new page"})
        await until(server.url, documents__handbook=5.0)
        # As a share that is not mounted any more.
        shutil.move(project / "handbook", project / "away")
        (project / "handbook").mkdir()
        found = await until(server.url, documents_up__handbook=0.0)
        assert found["pegboard_documents handbook"] == 5.0
        state, detail = doctor(project)["handbook of s1"]
        assert state == "unreachable"
        assert "all 5 documents of the source 'handbook' would be removed" in detail
        shutil.copytree(project / "away", project / "handbook", dirs_exist_ok=True)
        await until(server.url, documents_up__handbook=1.0, documents__handbook=5.0)
    told = server.said.read_text()
    assert told.count("documents_not_synced: 'handbook' in the space 's1': Nothing was changed") == 1
    assert doctor(project)["handbook of s1"][0] == "ok"


async def test_a_source_that_a_reload_adds_comes_in(project: Path) -> None:
    files(project / "rules", {"a.txt": "a rule"})
    async with serving(project, "--reload") as server:
        await until(server.url, documents__handbook=4.0)
        (project / "pegboard.yaml").write_text(
            CONFIG.replace("profiles:", "    - {path: ./rules, space: s1, watch: false}\nprofiles:")
        )
        await until(server.url, documents__handbook=4.0, documents__rules=1.0)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ('{path: ./a, space: "a\\nb"}', "is not a valid space name"),
        ("{path: ./a, space: s1, encoding: nonesuch}", "There is no encoding 'nonesuch'"),
        ("{path: ./handbook, space: s1}", "there are two sources 'handbook' of the space 's1'. Give one a"),
        ("{space: s1}", "a source has one of `path`, `git`, `bucket` and `sitemap`"),
        ("{path: ./a, sitemap: 'https://example.com', space: s1}", "a source has one of `path`"),
        ("{git: {url: 'ext::sh'}, space: s1}", "is not a Git repository"),
        ("{bucket: {name: a, access_key: b}, space: s1}", "belong together"),
        ("{sitemap: 'ftp://example.com', space: s1}", "is not an http or https URL"),
    ],
)
def test_a_source_that_cannot_be_kept_in_step_is_a_problem_of_the_config(
    project: Path, source: str, problem: str
) -> None:
    (project / "pegboard.yaml").write_text(CONFIG.replace("profiles:", f"    - {source}\nprofiles:"))
    done = forking.run(["pegboard", "check"], cwd=project, timeout_s=PATIENCE_S, is_merged=True)
    assert done.returncode != 0
    assert problem in done.stdout.decode()
