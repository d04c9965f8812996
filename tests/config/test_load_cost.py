"""What reading a config loads: what the config does not have costs its start nothing."""

import json
import subprocess
import sys
from pathlib import Path

from pegboard.config.forms.agent_form import AGENT_FILES
from pegboard.config.forms.agent_words import KEYS_OF_AGENT_FILES

# What is heavy, and what a config of Python tools alone has no use for.
_UNUSED = [
    "httpcore2", "httpx2", "pegboard.agents.conversations", "pegboard.audit", "pegboard.auth.present_rights",
    "pegboard.cli.http_serving",
    "pegboard.config.declared_budgets", "pegboard.config.forms.agent_form", "pegboard.config.forms.source_auth_form",
    "pegboard.config.kinds.tool_form", "pegboard.config.reload", "pegboard.config.source_auth",
    "pegboard.config.workspace", "pegboard.consent.sql_records", "pegboard.planning", "pegboard.sources.builtin.kind",
    "pegboard.sources.mcp", "pegboard.sources.openapi", "pegboard.storage.database", "pegboard.tasks.tasks", "sqlite3",
]  # fmt: skip
_LOAD = f"""
import json, sys
import pegboard.cli.commands.serve
from pathlib import Path
from pegboard.config import load_catalog
catalog, _ = load_catalog(Path("pegboard.yaml"), env={{}})
print(json.dumps([len(catalog.registry.build().entries), sorted(set({_UNUSED}) & set(sys.modules))]))
"""


def loaded(folder: Path, config: str) -> tuple[int, set[str]]:
    """Return how many tools a config has, and what of the unused was loaded for it."""
    (folder / "pegboard.yaml").write_text(config)
    (folder / "own.py").write_text(
        "from pegboard import default_catalog\n@default_catalog.tool\ndef here() -> None: ...\n"
    )
    ran = subprocess.run([sys.executable, "-c", _LOAD], cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    count, names = json.loads(ran.stdout)
    return count, set(names)


def test_a_config_of_python_tools_loads_no_http_client_no_store_and_no_form_of_another_kind(tmp_path: Path) -> None:
    assert loaded(tmp_path, "python: [own]\n") == (1, set())


def test_a_file_is_known_for_an_agents_by_all_keys_that_its_form_has() -> None:
    assert [set(form.model_fields) for form in AGENT_FILES] == [set(KEYS_OF_AGENT_FILES)] * 2


def test_a_client_that_starts_the_server_waits_for_no_numpy_and_no_http(tmp_path: Path) -> None:
    (tmp_path / "pegboard.yaml").write_text("python: [own]\n")
    (tmp_path / "own.py").write_text(
        "from pegboard import default_catalog\n@default_catalog.tool\ndef here() -> None: ...\n"
    )
    code = "import sys; sys.argv = ['pegboard', 'serve', '--stdio']; from pegboard.cli import main; main()"
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "client", "version": "1"}}
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}},
    ]
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False,
        input="".join(json.dumps(each) + "\n" for each in messages),
    )  # fmt: skip
    assert '"here"' in ran.stdout, ran.stderr
    imported = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines() if line.startswith("import time:")}
    assert "pegboard.server.stdio" in imported
    assert not imported & {"httpcore2", "httpx2", "numpy", "pegboard.cli.http_serving", "sqlalchemy"}
