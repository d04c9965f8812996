"""A forgotten person: no stored row has the name, and the chain still verifies, on every store."""

import re
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.audit.audit_store import AuditStore
from pegboard.audit.forgotten_user import ForgottenUser
from pegboard.audit.hash_chain import HeadSigner, Unsealed
from pegboard.audit.jsonl_audit import JsonlAudit
from pegboard.audit.verify_chain import verify
from pegboard.model.secret import Secret
from pegboard.storage.store_error import StoreError
from tests.audit.test_stores import SIGNER, faults_of, make_store, tamper

__all__ = ["make_store"]

NAME = "canary.person"
PERSON = ForgottenUser(user=NAME, keys=frozenset({f"{NAME}-laptop", "phone-7"}), pseudonym="forgotten-1")
Make = Callable[[], AuditStore]


def row(at: float, **fields: object) -> Unsealed:
    return Unsealed(at, orjson.dumps({"at": at, **fields}))


ROWS = [
    row(1.0, call_id="c1", user=NAME, key="phone-7", salt="00ff", limit_keys=[f"x/{NAME}"], arguments={"to": NAME}),
    row(2.0, call_id="c2", user="bob", arguments={"to": NAME}),
    row(3.0, event="key_added", credential="cli:root", detail={"name": f"{NAME}-laptop"}),
    row(4.0, call_id="c4", user=f"{NAME}ia", salt="11ee"),
]


def texts(store: AuditStore) -> list[str]:
    return [each.raw.decode() for chain in store.chains() for each in store.rows(chain)]


def filled(make_store: Make) -> AuditStore:
    store = make_store()
    store.append(ROWS, SIGNER, closes=True, now=5.0)
    store.close()
    return store


def test_names_are_replaced_the_chain_verifies_and_goes_on(make_store: Make) -> None:
    store = filled(make_store)
    originals = texts(store)
    assert store.rewrite(PERSON.pseudonymised, SIGNER, now=6.0) == 2
    first, second, third, fourth = texts(store)
    theirs = orjson.loads(first)
    assert {name: theirs.get(name) for name in ("user", "key", "limit_keys", "salt", "arguments", "call_id")} == {
        "user": "forgotten-1", "key": "forgotten-1", "limit_keys": ["x/forgotten-1"], "salt": None, "arguments": None,
        "call_id": "c1",
    }  # fmt: skip
    # What others sent stays, and so does a longer name.
    assert (second, fourth) == (originals[1], originals[3])
    assert orjson.loads(third)["detail"] == {"name": "forgotten-1"}
    assert faults_of(store) == []
    store.close()
    store = make_store()
    store.append([row(7.0, call_id="c7")], SIGNER, closes=True, now=7.0)
    (checked,) = verify(store, SIGNER)
    assert (checked.rows, checked.forgotten, checked.faults) == (5, 2, [])
    # Nothing is left to do.
    store.close()
    assert make_store().rewrite(PERSON.pseudonymised, SIGNER, now=8.0) == 0


def test_a_row_can_lose_the_names_of_a_second_person_later(make_store: Make) -> None:
    store = filled(make_store)
    store.rewrite(PERSON.pseudonymised, SIGNER, now=6.0)
    again = ForgottenUser(user="root", keys=frozenset(), pseudonym="forgotten-2")
    assert store.rewrite(again.pseudonymised, SIGNER, now=7.0) == 1
    assert orjson.loads(texts(store)[2])["credential"] == "cli:forgotten-2"
    assert faults_of(store) == []


def test_a_forgotten_row_that_somebody_alters_is_named(make_store: Make) -> None:
    store = filled(make_store)
    store.rewrite(PERSON.pseudonymised, SIGNER, now=6.0)
    tamper(store, lambda rows: [rows[0]._replace(raw=rows[0].raw.replace(b"c1", b"d1")), *rows[1:]])
    assert faults_of(make_store()) == ["row 1 was altered: its hash differs"]


def test_only_who_has_the_key_can_make_a_row_count_as_forgotten(make_store: Make) -> None:
    store = filled(make_store)
    store.rewrite(PERSON.pseudonymised, HeadSigner(Secret("another key")), now=6.0)
    faults = faults_of(store)
    assert "row 1 was altered: its hash differs" in faults
    assert "the forgotten row at 1 does not have a valid signature" in faults


def test_a_file_that_a_server_writes_is_left_alone(tmp_path: Path) -> None:
    server, command = (JsonlAudit(tmp_path / "audit.jsonl") for _ in range(2))
    server.append(ROWS, SIGNER, closes=True, now=5.0)
    with pytest.raises(StoreError, match="is in use: stop `pegboard serve`"):
        command.rewrite(PERSON.pseudonymised, SIGNER, now=6.0)
    server.close()
    assert command.rewrite(PERSON.pseudonymised, SIGNER, now=6.0) == 2


def test_a_file_with_a_row_that_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    store = JsonlAudit(tmp_path / "audit.jsonl")
    store.append(ROWS, SIGNER, closes=True, now=5.0)
    store.close()
    file = tmp_path / "audit.jsonl"
    file.write_bytes(file.read_bytes().replace(b'{"seq":2', b'{"seq":!'))
    before = file.read_bytes()
    with pytest.raises(StoreError, match="cannot be read"):
        store.rewrite(PERSON.pseudonymised, SIGNER, now=6.0)
    assert file.read_bytes() == before
    assert PERSON.pseudonymised(b"{" + NAME.encode()) is None


texts_with_name = st.lists(st.sampled_from(["x", " ", "/", '"', "\\", "é", NAME, f"{NAME}-laptop", "phone-7"])).map(
    "".join
)


@given(
    st.dictionaries(
        st.sampled_from(
            ["agent", "session", "credential", "reason", "detail", "limit_keys", "roles", "client", "arguments"]
        ),
        texts_with_name | st.lists(texts_with_name) | st.dictionaries(texts_with_name, texts_with_name),
    )
)
def test_no_field_of_a_persons_row_has_the_name_as_a_word(fields: dict[str, object]) -> None:
    raw = orjson.dumps({"seq": 1, "at": 1.0, "user": NAME, **fields})
    changed = PERSON.pseudonymised(raw)
    assert changed is not None
    for name in PERSON.names:
        assert not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", orjson.dumps(orjson.loads(changed)).decode())
    assert orjson.loads(changed)["user"] == "forgotten-1"
