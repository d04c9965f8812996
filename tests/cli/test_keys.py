"""pegboard keys, and what serve makes of identity."""

import re
import subprocess
import sys
from pathlib import Path

import httpx2
import orjson
import pytest

from tests import forking
from tests.cli.conftest import Run
from tests.server.doors import JSON_HEADERS, VERSION

PEGBOARD = Path(sys.executable).with_name("pegboard")
KEY = re.compile(r"pgb_[0-9a-f]{16}_[A-Za-z0-9_-]{43}")
CONFIG = """\
profiles: {chat: {}}
identity:
  api_keys: {store: "sqlite:./keys.db"}
  map: [{when: {key: ann-laptop}, user: ann, profiles: [chat]}]
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path) -> None:
    (tmp_path / "pegboard.yaml").write_text(CONFIG)


def test_a_key_is_shown_once_and_alone_on_the_output(run: Run, tmp_path: Path) -> None:
    made = run("keys", "add", "ann-laptop")
    assert made.code == 0
    assert KEY.fullmatch(made.out.strip())
    assert "shown only once" in made.err
    assert "No rule names it" not in made.err
    shown = run("keys", "ls").out + run("keys", "ls", "--json").out + run("keys", "revoke", "ann-laptop").out
    _, _, secret = made.out.strip().split("_", 2)
    assert secret not in shown
    assert (tmp_path / "keys.db").exists()


def test_keys_are_listed_with_their_state(run: Run) -> None:
    assert (run("keys").code, run("keys", "ls", "--json").out) == (0, '{\n  "keys": []\n}\n')
    run("keys", "add", "ann-laptop")
    second = orjson.loads(run("keys", "add", "bob", "--days", "3", "--json").out)
    assert (second["name"], second["state"], KEY.fullmatch(second["key"]) is not None) == ("bob", "active", True)
    run("keys", "revoke", second["id"])
    listed = orjson.loads(run("keys", "ls", "--json").out)["keys"]
    assert [(key["name"], key["state"]) for key in listed] == [("ann-laptop", "active"), ("bob", "revoked")]
    assert listed[1]["expiresAt"] is not None
    assert "key" not in listed[1]
    table = run("keys", "ls").out
    assert "ann-laptop" in table
    assert "2 keys in" in table


def test_a_key_that_the_disk_does_not_take_is_refused_with_what_the_disk_said(tmp_path: Path) -> None:
    def add(name: str, *, takes_bytes: int) -> subprocess.CompletedProcess[str]:
        # The limit makes every longer write fail, as a full disk does, and needs no small disk.
        full = f"import os, resource as r; r.setrlimit(r.RLIMIT_FSIZE, ({takes_bytes}, {takes_bytes}))"
        start = f"{full}; os.execv({str(PEGBOARD)!r}, ['pegboard', 'keys', 'add', {name!r}])"
        return subprocess.run([sys.executable, "-c", start], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert add("ann-laptop", takes_bytes=1_000_000).returncode == 0
    refused = add("bob", takes_bytes=0)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert re.search(r"keys\.db' cannot be written: .*(disk I/O error|disk is full)", refused.stderr), refused.stderr
    assert "rollback" not in refused.stderr


def test_a_key_is_rotated_with_the_time_for_which_the_old_one_still_holds(run: Run) -> None:
    run("keys", "add", "ann-laptop", "--days", "3")
    ran = run("keys", "rotate", "ann-laptop", "--overlap", "24h")
    assert (KEY.fullmatch(ran.out.strip()) is not None, "The old key ends in 1 day" in ran.err) == (True, True)
    listed = orjson.loads(run("keys", "ls", "--json").out)["keys"]
    assert [key["state"] for key in listed] == ["active", "active"]
    assert run("keys", "rotate", "ann-laptop").err.endswith("The old key ends now.\n")
    listed = orjson.loads(run("keys", "ls", "--json").out)["keys"]
    assert [key["state"] for key in listed] == ["expired", "expired", "active"]
    for wrong in (
        ["rotate", "bob"],
        ["rotate"],
        ["add", "bob", "--overlap", "1h"],
        ["rotate", "x", "--overlap", "ten"],
    ):
        assert run("keys", *wrong).code in (1, 2)


@pytest.mark.parametrize("overlap", [[], ["--overlap", "24h"]])
def test_revoking_a_name_right_after_a_rotation_does_not_end_the_new_key(run: Run, overlap: list[str]) -> None:
    run("keys", "add", "ann-laptop")
    run("keys", "rotate", "ann-laptop", *overlap)
    old, new = orjson.loads(run("keys", "ls", "--json").out)["keys"]
    refused = run("keys", "revoke", "ann-laptop")
    assert (refused.code, refused.out) == (1, "")
    assert f"`pegboard keys revoke {old['id']}`, or all with --all" in refused.err
    assert run("keys", "revoke", old["id"]).code == 0
    states = {key["id"]: key["state"] for key in orjson.loads(run("keys", "ls", "--json").out)["keys"]}
    assert states == {old["id"]: "revoked", new["id"]: "active"}
    assert run("keys", "revoke", "ann-laptop").code == 0, "now the name means one key"


def test_all_keys_of_a_name_are_revoked_when_told_so(run: Run) -> None:
    run("keys", "add", "ann-laptop")
    run("keys", "rotate", "ann-laptop", "--overlap", "24h")
    assert run("keys", "revoke", "ann-laptop", "--all").out.count("Revoked 'ann-laptop'") == 2
    assert run("keys", "rotate", "ann-laptop", "--all").code == 2


def test_a_key_that_no_rule_names_is_told_so(run: Run) -> None:
    assert "{when: {key: bob}" in run("keys", "add", "bob").err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["keys", "add", "ann-laptop"], 1, "a key 'ann-laptop' already"),
        (["keys", "revoke", "bob"], 1, "no key 'bob' to revoke"),
        (["keys", "add", "a b"], 1, "cannot be used"),
        (["keys", "add"], 2, "requires an argument"),
        (["keys", "revoke"], 2, "requires an argument"),
        (["keys", "ls", "x"], 2, "Unexpected argument"),
        (["keys", "add", "x", "--days", "0"], 2, "--days"),
        (["keys", "ls", "--days", "3"], 2, "--days"),
        (["keys", "drop"], 2, "drop"),
    ],
)
def test_what_cannot_be_done_says_why_and_ends_with_its_code(run: Run, words: list[str], code: int, said: str) -> None:
    run("keys", "add", "ann-laptop")
    ran = run(*words)
    assert (ran.code, said in ran.err, ran.out) == (code, True, "")
    assert orjson.loads(run(*words, "--json").out)["error"]["message"]


def test_a_config_without_keys_says_how_to_have_some(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pegboard.yaml").write_text("name: x\n")
    ran = run("keys", "add", "ann")
    assert (ran.code, ran.out) == (2, "")
    assert "accepts no API keys" in ran.err
    assert not (tmp_path / "pegboard.db").exists()


def test_a_store_that_is_no_database_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "keys.db").write_text("not a database, but rather long for a text file")
    for words in (["keys", "add", "x"], ["keys", "ls"], ["keys", "revoke", "x"]):
        ran = run(*words)
        assert (ran.code, "cannot be" in ran.err) == (1, True)
    assert (tmp_path / "keys.db").read_text().startswith("not a database")


def piped(*words: str) -> subprocess.CompletedProcess[bytes]:
    return forking.run(["pegboard", *words])


def status(address: str, credential: str | None) -> tuple[int, str | None]:
    """Return what a server answers to a list, and how it wants to be asked."""
    meta = {"io.modelcontextprotocol/protocolVersion": VERSION, "io.modelcontextprotocol/clientCapabilities": {}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    headers = {**JSON_HEADERS, "mcp-protocol-version": VERSION, "mcp-method": "tools/list"}
    if credential is not None:
        headers["authorization"] = f"Bearer {credential}"
    answer = httpx2.post(address, headers=headers, json=body, timeout=30)
    return answer.status_code, answer.headers.get("www-authenticate")


def test_a_key_opens_a_running_server_until_it_is_revoked() -> None:
    key = piped("keys", "add", "ann-laptop").stdout.decode().strip()
    command = [PEGBOARD, "serve", "--host", "0.0.0.0", "--port", "0", "--allow-host", "127.0.0.1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            address = server.stderr.readline().split()[-1].replace("0.0.0.0", "127.0.0.1")
            assert status(address, key) == (200, None)
            assert status(address, None) == (401, 'Bearer realm="pegboard"')
            assert status(address, "x" * 100_000) == (401, 'Bearer error="invalid_token"')
            assert piped("keys", "revoke", "ann-laptop").returncode == 0
            assert status(address, key) == (401, 'Bearer error="invalid_token"')
            again = piped("keys", "add", "ann-laptop").stdout.decode().strip()
            assert (status(address, again)[0], status(address, key)[0]) == (200, 401)
        finally:
            server.terminate()
            rest = server.stderr.read()
    assert server.returncode == 0
    assert key[-20:] not in rest


def test_serve_without_identity_refuses_other_machines_and_says_what_to_do(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pegboard.yaml").write_text("name: x\n")
    for more in ([], ["--reload"]):
        ran = run("serve", "--host", "0.0.0.0", "--allow-host", "tools.example.com", *more)
        assert ran.code == 2
        assert "Add `identity:`" in ran.err


def test_serve_for_other_machines_needs_the_names_they_use(run: Run) -> None:
    ran = run("serve", "--host", "0.0.0.0")
    assert ran.code == 2
    assert "--allow-host tools.example.com" in ran.err
