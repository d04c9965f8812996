"""pegboard keys, and what serve makes of identity."""

import re
from pathlib import Path

import orjson
import pytest

from pegboard.auth.keys import KeyStore
from tests.cli.conftest import Run

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
    assert made.out.strip().rpartition("_")[2] not in shown
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


def test_a_key_that_no_rule_names_is_told_so(run: Run) -> None:
    assert "{when: {key: bob}" in run("keys", "add", "bob").err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["keys", "add", "ann-laptop"], 1, "a key 'ann-laptop' already"),
        (["keys", "revoke", "bob"], 1, "no key 'bob' to revoke"),
        (["keys", "add", "a b"], 1, "cannot be used"),
        (["keys", "add"], 2, "needs a name"),
        (["keys", "revoke"], 2, "needs a name"),
        (["keys", "ls", "x"], 2, "takes no name"),
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
    assert "takes no API keys" in ran.err
    assert not (tmp_path / "pegboard.db").exists()


def test_a_store_that_is_no_database_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "keys.db").write_text("not a database, but rather long for a text file")
    for words in (["keys", "add", "x"], ["keys", "ls"], ["keys", "revoke", "x"]):
        ran = run(*words)
        assert (ran.code, "cannot be" in ran.err) == (1, True)
    assert (tmp_path / "keys.db").read_text().startswith("not a database")


def test_a_key_made_on_the_command_line_opens_the_door(run: Run, tmp_path: Path) -> None:
    made = run("keys", "add", "ann-laptop").out.strip()
    assert [key.name for key in KeyStore(tmp_path / "keys.db").read()] == ["ann-laptop"]
    assert KEY.fullmatch(made)


def test_serve_without_identity_refuses_other_machines_and_says_what_to_do(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pegboard.yaml").write_text("name: x\n")
    for more in ([], ["--reload"]):
        ran = run("serve", "--host", "0.0.0.0", "--allow-host", "tools.example.com", *more)
        assert ran.code == 2
        assert "under `identity:`" in ran.err


def test_serve_for_other_machines_needs_the_names_they_use(run: Run) -> None:
    ran = run("serve", "--host", "0.0.0.0")
    assert ran.code == 2
    assert "--allow-host tools.example.com" in ran.err
