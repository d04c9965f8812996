"""A config that is refused on SIGHUP, without `--reload`, has a row in the audit."""

import asyncio
import os
import signal
from pathlib import Path

from tests.config.project import Project
from tests.server.processes import serving
from tests.timing import PATIENCE_S

CONFIG = "groups: {core: all}\naudit: {store: 'jsonl:rows.jsonl'}\nsettings: {key: '${TOKEN}'}\n"
CANARY = "canary-3f8a1c77e2b94d60"


def refusals(folder: Path) -> list[str]:
    """Return the rows about refused configs, of all workers."""
    lines = [line for file in folder.glob("rows*") for line in file.read_text().splitlines()]
    return [line for line in lines if '"config_refused"' in line]


async def test_a_config_that_is_refused_on_a_hangup_has_a_row_in_the_audit(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    project = Project(tmp_path).write(CONFIG)
    env = {"TOKEN": CANARY}
    async with serving(tmp_path, "--workers", "2", env=env) as server:
        for count in (1, 2):
            project.write(f"{CONFIG}tools: [{{name: {CANARY}, type: nothing}}]\n")
            os.kill(server.pid, signal.SIGHUP)
            async with asyncio.timeout(PATIENCE_S):
                while len(refusals(tmp_path)) < count:
                    await asyncio.sleep(0.05)
    rows = refusals(tmp_path)
    # A worker that was still starting is refused as well.
    assert len(rows) >= 2
    assert all("pegboard.yaml:4" in row for row in rows)
    assert CANARY not in str(rows)
