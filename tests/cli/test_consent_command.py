"""pegboard consent: the inbox on the command line, where whoever has the shell and the config file decides."""

import time
from pathlib import Path

import orjson
import pytest

from pegboard.cli.commands.consent import span_s
from tests.cli.conftest import Run

CONFIG = """\
consents: {store: "sqlite:./consents.db", url: "https://shop.example/tools"}
python: [mine]
tools:
  - {name: pay, type: internal, handler: "python:mine:pay", consent: always}
"""
MODULE = "async def pay(to: str, amount: int = 1) -> str:\n    return f'paid {to} {amount}'\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path) -> None:
    (tmp_path / "pegboard.yaml").write_text(CONFIG)
    (tmp_path / "mine.py").write_text(MODULE)


def asked(run: Run, *words: str) -> str:
    answer = orjson.loads(run("call", "pay", *words, "--json").out)
    assert answer["error"]["kind"] == "consent_required"
    return answer["error"]["details"]["consent_id"]


def test_a_question_is_listed_read_approved_and_the_same_call_passes_once(run: Run) -> None:
    assert run("consent").out == "0 questions wait.\n"
    refused = run("call", "pay", "to=bob\u202e")
    one = asked(run, "to=bob\u202e")
    assert f"`pegboard consent approve {one}` or https://shop.example/tools/consents/{one}" in refused.err
    listed = run("consent", "ls")
    assert ("1 question waits." in listed.out, '"bob\\u202e"' in listed.out) == (True, True)
    assert run("consent", "show", one).out.startswith("Allow this call of 'main.pay'?")
    approved = run("consent", "approve", one, "--for", "5m")
    assert (approved.code, "Approved." in approved.out, '"bob\\u202e"' in approved.out) == (0, True, True)
    assert [run("call", "pay", "to=bob\u202e").code for _ in range(2)] == [0, 1]
    assert "0 of 1" in run("consent", "ls", "--all").out


def test_a_no_holds_until_it_is_forgotten(run: Run) -> None:
    one = asked(run, "to=bob")
    assert run("consent", "deny", one, "--reason", "Bob\x1b has left.").code == 0
    refused = run("call", "pay", "to=bob").err
    assert ("a person declined it and said:" in refused, "Bob" in refused, "\x1b" in refused) == (True, True, False)
    assert "declined such a call in this session" in " ".join(run("why", "pay").out.split())
    shown = run("consent", "show", one).out
    assert ("Declined: Bob" in shown, "\x1b" in shown) == (True, False)
    assert run("consent", "forget", one).code == 0
    assert asked(run, "to=bob") != one


def test_two_people_approve_a_tool_with_four_eyes_and_the_shell_user_is_one_of_them(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pegboard.yaml").write_text(CONFIG.replace("consent: always", "four_eyes: true"))
    assert "names no user" in run("call", "pay", "to=bob").err
    call = ("to=bob", "--as", "user=ann")
    one = asked(run, *call)
    assert "two people approve first" in run("list").out
    assert "0 of 2 have" in " ".join(run("why", "pay", "--as", "user=ann").out.split())
    approved = run("consent", "approve", one)
    assert (approved.code, "Approved: 1 of 2." in approved.out) == (0, True)
    assert "asked (1 of 2)" in " ".join(run("consent").out.split())
    again = run("consent", "approve", one)
    assert (again.code, "You have approved this call (1 of 2)" in again.err) == (1, True)
    for granted in (one, "pay"):
        refused = run("consent", "grant", granted, "--calls", "2", "--for", "1h", "--any-other", "--as", "user=ann")
        assert (refused.code, "one person cannot allow several calls" in refused.err) == (1, True)
    assert run("call", "pay", *call).code == 1
    (tmp_path / "pegboard.yaml").write_text(CONFIG.partition("\n")[2].replace("consent: always", "four_eyes: true"))
    assert "two people decide in an inbox, and there is none" in run("check").out


def test_calls_are_granted_to_whoever_asked_or_to_a_person_of_a_tool(run: Run) -> None:
    one = asked(run, "to=bob")
    granted = run("consent", "grant", one, "--calls", "2", "--for", "1h", "--where", "to=bob", "--any-other", "--json")
    assert orjson.loads(granted.out)["usesLeft"] == 2
    assert [run("call", "pay", "to=bob", f"amount={n}").code for n in range(3)] == [0, 0, 1]
    by_name = run(
        "consent", "grant", "pay", "--calls", "1", "--for", "1h", "--where", "amount=5", "--any", "to", "--as",
        "user=eve",
    )  # fmt: skip
    assert (by_name.code, by_name.out) == (0, "Granted: up to 1 calls.\n")
    assert run("call", "pay", "to=x", "amount=5").code == 1
    assert [run("call", "pay", "to=x", f"amount={n}", "--as", "user=eve").code for n in (4, 5, 5)] == [1, 0, 1]


def test_a_grant_closes_what_it_does_not_name_and_says_in_words_what_stays_open(run: Run) -> None:
    one, terms = asked(run, "to=bob"), ("--calls", "9", "--for", "1h")
    refused = run("consent", "grant", one, *terms)
    assert (refused.code, "every call of 'main.pay' has 'to'" in refused.err) == (2, True)
    preview = run("consent", "grant", one, *terms, "--where", "to=bob", "--preview")
    assert preview == (
        0,
        'Allow up to 9 calls of \'main.pay\' by an unknown caller without asking. Fixed: {"to": "bob"}. '
        'No other argument is allowed, except the defaults {"amount": 1}.\n',
        "",
    )
    open_to_all = run("consent", "grant", one, *terms, "--any-other", "--preview", "--json")
    assert "OPEN: any value of every other argument, such as 'to', 'amount'." in open_to_all.out
    assert run("call", "pay", "to=bob").code == 1, "a preview gives nothing"
    given = run("consent", "grant", one, *terms, "--same", "to")
    assert (given.code, 'Fixed: {"to": "bob"}' in given.err) == (0, True)
    codes = [run("call", "pay", *words).code for words in (("to=bob",), ("to=bob", "amount=1"), ("to=bob", "amount=2"))]
    assert codes == [0, 0, 1]
    by_name = run("consent", "grant", "pay", *terms, "--any", "amount", "--where", "to=eve", "--as", "user=eve")
    assert (by_name.code, "OPEN: any value of 'amount'." in by_name.err) == (0, True)
    listed = run("consent", "ls", "--all").out
    assert ("OPEN: any value of 'amount'." in listed, "except the defaults" in listed) == (True, True)


def test_a_call_that_is_to_wait_asks_nobody_here_and_is_not_agreed_to_as_well(run: Run) -> None:
    asked(run, "to=bob", "--later")
    assert run("call", "pay", "to=bob", "--later", "--yes").code == 2


def test_a_caller_with_an_api_key_is_shown_and_named_by_the_name_of_its_key(run: Run, tmp_path: Path) -> None:
    identity = "identity: {api_keys: {store: 'sqlite:./k.db'}, map: [{when: {key: agent}, profiles: [all]}]}"
    (tmp_path / "pegboard.yaml").write_text(f"{CONFIG}{identity}\nprofiles: {{all: {{}}}}\n")
    run("keys", "add", "agent")
    terms = ("--calls", "9", "--for", "1h", "--any-other", "--credential", "agent")
    assert "by credential 'agent' without asking" in run("consent", "grant", "pay", *terms).err
    listed = run("consent", "ls", "--all")
    [kept] = orjson.loads(run("consent", "ls", "--all", "--json").out)["consents"]
    row = next(line.split("  ") for line in listed.out.splitlines() if line.startswith(kept["id"]))
    assert "agent" in [cell.strip() for cell in row]
    assert (kept["credential"] == "agent", kept["credential"] in listed.out) == (False, False)


def test_an_id_is_never_folded_in_a_narrow_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    one = asked(run, "to=bob")
    monkeypatch.setenv("COLUMNS", "50")
    assert any(line.startswith(one) for line in run("consent", "ls").out.splitlines() if f"{one}:" not in line)


def test_what_cannot_be_is_refused_in_a_sentence(run: Run, tmp_path: Path) -> None:
    one = asked(run, "to=bob")
    for words, code, text in (
        (("approve",), 2, '"consent approve" parameter NAME requires an argument'),
        (("ls", one), 2, "Unexpected argument"),
        (("approve", "f" * 32), 1, "There is no consent"),
        (("show", "f" * 32), 1, "There is no consent"),
        (("forget", "f" * 32), 1, "There is no consent"),
        (("deny", one, "--for", "1h"), 2, "Unknown option: --for"),
        (("approve", one, "--calls", "2"), 2, "Unknown option: --calls"),
        (("approve", one, "--for", "soon"), 2, "is not a duration"),
        (("approve", one, "--for", "2001-01-01"), 2, "is in the past"),
        (("approve", one, "--for", "99d"), 2, "at most 31 days"),
        (("grant", one), 2, "number of calls"),
        (("grant", one, "--calls", "0", "--for", "1h"), 2, "1 to 10,000 calls"),
        (("grant", one, "--calls", "1", "--for", "1h", "--credential", "x"), 2, "a question already has its caller"),
        (("grant", one, "--calls", "1", "--for", "1h", "--same", "purpose"), 2, "have no 'purpose'"),
        (("grant", "pay", "--calls", "1", "--for", "1h", "--same", "to"), 2, "--same needs a question"),
        (("grant", "pay", "--calls", "1", "--for", "1h"), 2, "name the caller"),
        (("grant", "nothing", "--calls", "1", "--for", "1h", "--as", "user=eve"), 1, "nothing"),
    ):
        ended = run("consent", *words)
        assert (ended.code, text in ended.err) == (code, True), (words, ended)
    (tmp_path / "consents.db").write_bytes(b"no database" * 500)
    assert "cannot be used" in run("consent", "ls").err
    (tmp_path / "pegboard.yaml").write_text("consents: {store: 'redis://localhost'}")
    assert "no store for questions" in run("consent", "ls").err
    (tmp_path / "pegboard.yaml").write_text("consents: {store: 'mongo:x'}")
    assert "is unknown" in run("consent", "ls").err


@pytest.mark.parametrize("url", ["ftp://shop", "https://shop/", "https://a@shop", "https://shop?x=1", "shop"])
def test_an_address_of_the_page_that_is_none_is_refused(run: Run, tmp_path: Path, url: str) -> None:
    (tmp_path / "pegboard.yaml").write_text(f'consents: {{store: "sqlite:./c.db", url: "{url}"}}')
    assert "url" in run("check").out


def test_a_span_is_a_number_with_a_unit_or_lasts_to_the_end_of_a_day() -> None:
    assert [span_s(text, now=0.0) for text in ("30m", "12h", "7d", "45s")] == [1_800.0, 43_200.0, 604_800.0, 45.0]
    noon = time.mktime((2026, 11, 22, 12, 0, 0, 0, 0, 0))
    assert span_s("2026-11-22", now=noon) == 43_200.0
    assert span_s("2026-11-22T13:00", now=noon) == 3_600.0
