"""`pegboard audit` on a real store."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run


def test_a_refused_call_is_listed_shown_exported_verified_and_pruned(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("AUDIT_KEY", "k" * 32)
    (tmp_path / "pegboard.yaml").write_text("audit: {store: 'sqlite:./pegboard.db', sign_key: '${AUDIT_KEY}'}\n")
    assert run("audit", "ls").code != 0, "nothing was recorded yet"
    assert run("call", "nothing").code == 1
    (row,) = json.loads(run("audit", "ls", "--kind", "not_found", "--json").out)["rows"]
    assert (row["name"], row["decision"], row["session"]) == ("nothing", "unknown", "cli")
    assert "nothing" in run("audit", "--since", "1h").out
    assert run("audit", "ls", "--tool", "other").out == ""
    assert json.loads(run("audit", "show", row["call_id"]).out)["call_id"] == row["call_id"]
    beginning = row["call_id"][:8]
    assert beginning in run("audit", "ls").out
    assert json.loads(run("audit", "show", beginning).out)["call_id"] == row["call_id"]
    assert json.loads(run("audit", "export").out)["call_id"] == row["call_id"]
    checked = run("audit", "verify")
    assert (checked.code, "1 rows, all in order; a head proves the rows up to 1" in checked.out) == (0, True)
    (tmp_path / "head.json").write_text(run("audit", "head", "--json").out)
    assert run("audit", "prune", "--older-than", "0s").out == "1 rows deleted.\n"
    assert run("audit", "verify", "--head", "head.json").code == 0
    (tmp_path / "pegboard.db").unlink()
    run("call", "nothing")
    forgotten = run("audit", "verify", "--head", "head.json")
    assert (forgotten.code, "replaced" in forgotten.out) == (1, True)


def test_the_beginning_of_several_ids_is_refused(run: Run, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "pegboard.yaml").write_text("audit: {store: 'sqlite:./pegboard.db'}\n")
    for name in ("first", "second"):
        assert run("call", name).code == 1
    refused = run("audit", "show", "")
    assert (refused.code, refused.out) == (2, "")
    assert "Several calls have an id that begins with ''; give more of it." in refused.err
