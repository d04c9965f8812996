"""search, tokens, lint and refs: what an operator asks of discovery in the shell."""

import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from inline_snapshot import snapshot

from pegboard.config import load_catalog
from pegboard.discovery.learning.use_store import Use, UseStore
from pegboard.discovery.search.query import telling_terms
from tests.cli.conftest import Ran, Run

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("folder")


def answer(ran: Ran) -> dict[str, object]:
    """Return the one JSON document of a command that had nothing else to say."""
    assert ran.err == ""
    return orjson.loads(ran.out)


# ---- search


def test_search_shows_the_tools_of_a_profile_that_serve(run: Run) -> None:
    ran = run("search", "how many words are in this text", "--profile", "chat", "--limit", "1")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[2].split()[:2] == ["count_words", "main"]
    assert ran.out.splitlines()[-1] == "1 tool for 'how many words are in this text' for profile 'chat'."


def test_search_as_json_is_what_the_meta_tool_answers(run: Run) -> None:
    told = answer(run("search", "delete a page", "--json"))
    assert set(told) == {"profile", "query", "hits"}
    assert told["hits"][0] == {  # type: ignore[index]
        "agent": "main",
        "tool": "delete_page",
        "call": "delete_page",
        "score": told["hits"][0]["score"],  # type: ignore[index]
        "confidence": "strong",
        "asks": True,
        "description": "Delete a page.",
        "inputSchema": {"type": "object", "properties": {"page": {"type": "string"}}, "required": ["page"]},
    }


def test_search_takes_words_without_quotes(run: Run) -> None:
    assert answer(run("search", "delete", "a", "page", "--json")) == answer(run("search", "delete a page", "--json"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), 'Describe what you need: pegboard search "create an issue"'),
        (("", " "), 'Describe what you need: pegboard search "create an issue"'),
        (("delete", "--limit", "0"), "--limit 0: there is nothing to show. Give 1 or more."),
        (("delete", "--profile", "nobody"), "Unknown profile 'nobody'. Profiles: "),
        (("delete", "--config", "none.yaml"), "The config file 'none.yaml' does not exist."),
    ],
)
def test_search_says_what_it_wants(run: Run, words: tuple[str, ...], said: str) -> None:
    ran = run("search", *words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_search_says_that_no_tool_has_a_word_of_the_request(run: Run) -> None:
    ran = run("search", "transfer money abroad", "--limit", "2")
    assert (ran.code, ran.err) == (0, "")
    *table, summary, note = ran.out.splitlines()
    assert table[0].split() == ["Tool", "Namespace", "Score", "Confidence", "Description"]
    assert len([row for row in table if " weak " in row]) == 2
    assert summary == "2 tools for 'transfer money abroad' in all groups; nearest namespaces: main."
    assert note.startswith("No tool here has a word of this request: ")
    nothing = run("search", "!?")
    assert nothing.out == "0 tools for '!?' in all groups; nearest namespaces: main.\n"


def test_search_says_that_its_matches_are_weak(run: Run) -> None:
    ran = run("search", "approve the crumpled parking ticket of the notary's embassy page before Thursday")
    assert ran.code == 0
    assert "weak" in ran.out
    assert ran.out.splitlines()[-1].startswith("No hit stands out: compare the descriptions")


def test_search_does_not_find_what_the_profile_hides(run: Run) -> None:
    told = answer(run("search", "delete a page", "--profile", "chat", "--json"))
    assert "delete_page" not in str(told["hits"])


def test_search_explains_each_part_of_a_score(run: Run) -> None:
    words = ("search", "delete /tmp/x a page", "--json")
    plain, told = answer(run(*words)), answer(run(*words, "--explain"))
    whole = told.pop("explained")
    assert [word["is_argument"] for word in whole["asked"]] == [False, True, True, False]  # type: ignore[index]
    for hit in told["hits"]:  # type: ignore[attr-defined]
        parts = hit.pop("parts")
        assert hit["score"] == pytest.approx(parts["share"] * whole["chance"], abs=2e-4)  # type: ignore[index]
        assert (parts["likeness"], parts["use"]) == (None, None)
        assert parts["share"] == parts["by_words"]
    assert told == plain  # to explain changes nothing
    shown = run("search", "delete a page", "--explain").out
    assert "delete_page: 0." in shown
    assert "of the best × " in shown
    assert "  name: delet " in shown


def test_search_explains_what_examples_an_embedder_and_use_had_to_do_with_it(run: Run, folder: Path) -> None:
    config = (folder / "pegboard.yaml").read_text(encoding="utf-8")
    discovery = "discovery: {embedder: {type: hashing}, learn: {file: use.sqlite}}\n"
    examples = "    examples: ['throw away what I wrote']\n"
    here = "    description: Delete a page.\n"
    (folder / "pegboard.yaml").write_text(discovery + config.replace(here, here + examples), encoding="utf-8")
    entries = load_catalog(Path("pegboard.yaml"), env={})[0].registry.build().entries
    [echo] = [entry for entry in entries if entry.wire_name == "echo"]
    store, terms = UseStore(folder / "use.sqlite", catalog="acme"), telling_terms("throw away what I wrote")
    for caller in ("ann", "bob"):
        store.add("", Use(caller=caller, tool="main.echo", definition=echo.fingerprint, terms=terms))
    told = answer(run("search", "throw away what I wrote", "--explain", "--json"))
    parts = {hit["tool"]: hit["parts"] for hit in told["hits"]}  # type: ignore[attr-defined]
    assert parts["delete_page"]["fields"].keys() == {"requests"}
    assert parts["delete_page"]["likeness"] is not None
    assert (parts["delete_page"]["use"], parts["echo"]["use"], parts["echo"]["words"]) == (0.0, 0.75, {})
    assert (
        "  use: 0.75, called after requests like this one" in run("search", "throw away what I wrote", "--explain").out
    )


# ---- tokens


def test_tokens_weighs_each_exposure_of_each_profile(run: Run) -> None:
    told = answer(run("tokens", "--json"))
    assert str(told["counted_by"]).startswith("bytes / 4.3")
    chat = next(row for row in told["profiles"] if row["profile"] == "chat")  # type: ignore[attr-defined]
    assert (chat["tools"], chat["exposure"], chat["shown_as"]) == (2, "auto", "direct")
    listed = answer_bytes(run("export", "mcp", "--profile", "chat"))
    assert chat["tokens"]["direct"] == round(listed / 4.3)
    assert chat["tokens"]["direct"] < chat["tokens"]["search"]


def answer_bytes(ran: Ran) -> int:
    return len(orjson.dumps(orjson.loads(ran.out)))


def test_tokens_says_how_it_counted(run: Run) -> None:
    ran = run("tokens", "--profile", "chat")
    assert ran.code == 0
    assert ran.out.splitlines()[0].split() == [
        "Profile", "Tools", "Shown", "as", "direct", "two_tool", "search",
    ]  # fmt: skip
    assert "counted by bytes / 4.3" in ran.out


PLUGIN = """
def tiny():
    ranks = {bytes([byte]): byte for byte in range(256)}
    special = {"<|end|>": 256}
    return {"name": "tiny_offline", "pat_str": r"[\\s\\S]", "mergeable_ranks": ranks, "special_tokens": special}

ENCODING_CONSTRUCTORS = {"tiny_offline": tiny}
"""


def test_tokens_counts_with_a_vocabulary_that_is_there(tmp_path: Path) -> None:
    pytest.importorskip("tiktoken")
    (tmp_path / "tiktoken_ext").mkdir()
    (tmp_path / "tiktoken_ext" / "tiny.py").write_text(PLUGIN)
    # What ends a text for a model is plain text in a description.
    counted = "print(t.name, t.count('four'), t.count('a<|end|>'))"
    code = f"from pegboard.discovery.token_count import tokenizer; t = tokenizer(); {counted}"
    ran = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "tiktoken tiny_offline 4 8\n"


# ---- lint

BAD = """\
tools:
  - name: fetch
    type: internal
    handler: python:tests.cli.workshop:echo
    parameters: {type: object, additionalProperties: true, properties: {}}
  - name: send_mail
    type: internal
    description: Send mail.
    handler: python:tests.cli.workshop:echo
    parameters: {to: {type: string, required: true}}
  - name: find_customer
    type: internal
    description: Find a customer by their name or e-mail address.
    handler: python:tests.cli.workshop:echo
    parameters: {name: {type: string, required: true, description: Name or address.}}
  - name: search_customer
    type: internal
    description: Find a customer by their name or e-mail address.
    handler: python:tests.cli.workshop:echo
    parameters: {name: {type: string, required: true, description: Name or address.}}
  - name: nest
    type: internal
    description: Take a value that lies deep inside of others.
    handler: python:tests.cli.workshop:echo
    parameters:
      type: object
      properties:
        a: {type: object, description: One., properties: {b: {type: array, items: {type: object, properties:
          {c: {type: object, properties: {d: {type: array, items: {type: string}}}}}}}}}
"""


def test_lint_names_what_is_hard_to_find_to_tell_apart_or_to_use(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(BAD)
    ran = run("lint", "--config", str(tmp_path / "bad.yaml"), "--json")
    assert ran.code == 1
    told = answer(ran)
    found = [(one["tool"], one["rule"]) for one in told["findings"]]  # type: ignore[attr-defined]
    assert found == [
        ("fetch", "no description"),
        ("send_mail", "weak description"),
        ("send_mail", "silent parameters"),
        ("find_customer", "competing"),
        ("nest", "deep nesting"),
    ]


def test_lint_of_good_tools_ends_well(run: Run, tmp_path: Path) -> None:
    good = """\
    tools:
      - name: find_customer
        type: internal
        description: Find a customer by their name or e-mail address.
        handler: python:tests.cli.workshop:echo
        parameters: {type: object, additionalProperties: false, properties: {}}
    """
    (tmp_path / "good.yaml").write_text(good)
    ran = run("lint", "--config", str(tmp_path / "good.yaml"))
    assert ran == snapshot(Ran(code=0, out="0 findings in 0 of 1 tools.\n", err=""))


def test_what_an_export_mends_is_no_finding(run: Run, tmp_path: Path) -> None:
    config = """\
    tools:
      - name: 2fa-code
        type: internal
        description: Take one of two kinds of values.
        handler: python:tests.cli.workshop:echo
        parameters: {type: object, anyOf: [{required: [a]}, {required: [b]}], properties: {a: {type: string,
          description: One., minLength: 3, default: xxx}, b: {type: string, description: Other.}}}
    """
    (tmp_path / "either.yaml").write_text(config)
    ran = run("lint", "--config", str(tmp_path / "either.yaml"), "--fail-on", "note")
    assert (ran.code, ran.out) == (0, "0 findings in 0 of 1 tools.\n")


SHIPPED = """\
models: {default: {provider: openai_compatible, name: x, base_url: "http://127.0.0.1:1/v1"}}
tools:
  - {name: web_search, type: builtin, config: {provider: tavily, api_key: x1234567}}
  - {name: read_file, type: builtin, config: {roots: [.]}}
  - {name: write_file, type: builtin, config: {roots: [.]}}
  - {name: sql_query, type: builtin, config: {connection_string: "sqlite:///x.db"}}
  - {name: send_webhook, type: builtin, config: {allow_hosts: [hooks.example.com]}}
  - {name: send_slack, type: builtin, config: {token: xoxb-1234567}}
  - {name: send_email, type: builtin, config: {smtp_host: smtp.example.com, from_address: a@example.com}}
"""
EXAMPLES = ("quickstart", "team", "handbook", "openapi", "approvals")
PLAIN = "datetime_now json_transform cache_store http_request graphql_query web_scrape wikipedia text_summarize"


def test_nothing_that_pegboard_ships_is_a_finding(run: Run, tmp_path: Path) -> None:
    plain = "".join(f"  - {{name: {name}, type: builtin}}\n" for name in PLAIN.split())
    (tmp_path / "shipped.yaml").write_text(SHIPPED + plain)
    examples = [str(ROOT / "examples" / name / "pegboard.yaml") for name in EXAMPLES]
    for file in ("shipped.yaml", *examples):
        ran = run("lint", "--config", file, "--fail-on", "note")
        assert (ran.code, ran.out.partition(" in ")[0]) == (0, "0 findings"), ran.out
    run("init", "new")
    assert run("lint", "--config", "new", "--fail-on", "note").code == 0


DESCRIBED = '''\
import pegboard

@pegboard.default_catalog.tool
def find_order(query: str, page: int, ctx: pegboard.ToolContext) -> str:
    """Find an order in the shop.

    Args:
        qury: what to look for
        query, page: which of them
        ctx: is not an argument, and yet a parameter
    """
    return ""

@pegboard.default_catalog.tool
def take_note(text: str = "", **more: str) -> str:
    """Take a note about anything at all.

    Args:
        text: of the note
        **more: whatever else there is
        colour: of the paper
    """
    return ""

class Erase(pegboard.Tool):
    """Erase a note that somebody took.

    Args:
        nmber: of the note
        old_name: of the note
        limit: is an attribute of the class
    """

    number: int = pegboard.Field(description="which", aliases=["old_name"])
    limit = 3

    def perform(self) -> str:
        return ""
'''


def test_words_on_a_parameter_that_there_is_not_are_a_finding(run: Run, tmp_path: Path) -> None:
    (tmp_path / "described_tools.py").write_text(DESCRIBED)
    (tmp_path / "described.yaml").write_text("python: [described_tools]\n")
    ran = run("lint", "--config", "described.yaml", "--json")
    told = [(one["tool"], one["rule"], one["message"]) for one in answer(ran)["findings"]]  # type: ignore[attr-defined]
    assert (ran.code, told) == (
        1,
        [
            (tool, "stray words", f"the docstring describes {word!r}, which is not a parameter. Did you mean {name!r}?")
            for tool, word, name in (("find_order", "qury", "query"), ("erase", "nmber", "number"))
        ],
    )
    assert "which of them" in run("show", "find_order", "--config", "described.yaml").out


def test_lint_fails_from_the_level_that_is_asked_for(run: Run, tmp_path: Path) -> None:
    def code(text: str, *words: str) -> int:
        (tmp_path / "x.yaml").write_text(text)
        return run("lint", "--config", "x.yaml", *words).code

    nested = BAD[: BAD.index("  - name: fetch")] + BAD[BAD.index("  - name: nest") :]
    assert [code(nested, "--fail-on", level) for level in ("note", "warning", "error", "never")] == [1, 0, 0, 0]
    assert code(nested) == 0
    weak = BAD[: BAD.index("  - name: fetch")] + BAD[BAD.index("  - name: send_mail") : BAD.index("  - name: find_")]
    assert [code(weak, "--fail-on", level) for level in ("note", "warning", "error", "never")] == [1, 1, 0, 0]
    assert [code(BAD, "--fail-on", level) for level in ("error", "never")] == [1, 0]
    assert code(BAD, "--fail-on", "everything") == 2


def test_a_finding_is_ignored_for_a_reason_and_an_idle_ignore_is_told(run: Run, tmp_path: Path) -> None:
    def told(ignores: str, *words: str) -> dict[str, list[dict[str, str]]]:
        (tmp_path / "x.yaml").write_text(f"{BAD}lint:\n  ignore:\n{ignores}")
        return answer(run("lint", "--config", "x.yaml", "--json", *words))  # type: ignore[return-value]

    line = "    - {{tool: '{0}', rule: {1}, reason: {2}}}\n"
    both = told(line.format("main.send_*", "silent parameters", "known") + line.format("*", "competing", "on purpose"))
    assert [(one["tool"], one["rule"], one["reason"]) for one in both["ignored"]] == [
        ("send_mail", "silent parameters", "known"),
        ("find_customer", "competing", "on purpose"),
    ]
    assert [one["rule"] for one in both["findings"]] == ["no description", "weak description", "deep nesting"]
    idle = told(line.format("nest", "competing", "x") + line.format("gone", "no description", "x"))
    assert [(one["tool"], one["level"]) for one in idle["findings"] if one["rule"] == "idle ignore"] == [
        ("nest", "note"),
        ("gone", "note"),
    ]
    for wrong in (
        "{tool: a, rule: competing}",
        "{tool: a, rule: competin, reason: x}",
        "{tool: a, rule: '*', reason: x}",
    ):
        (tmp_path / "x.yaml").write_text(f"lint: {{ignore: [{wrong}]}}\n")
        assert run("check", "x.yaml").code == 2


OF_OTHERS = """\
openapi: 3.1.0
info: {title: Shop, version: "1"}
servers: [{url: "https://shop.example"}]
paths: {"/orders/{id}": {delete: {operationId: cancelOrder, summary: Cancel an order,
  parameters: [{name: id, in: path, required: true, schema: {type: integer}}], responses: {204: {description: done}}}}}
"""


def test_the_words_of_others_are_notes(run: Run, tmp_path: Path) -> None:
    (tmp_path / "api.yaml").write_text(OF_OTHERS)
    (tmp_path / "of_others.yaml").write_text("tools: [{name: shop, type: openapi, openapi: {spec: api.yaml}}]\n")
    assert run("lint", "--config", "of_others.yaml").code == 0
    ran = run("lint", "--config", "of_others.yaml", "--fail-on", "note")
    assert (ran.code, ran.out.splitlines()[-1]) == (1, "2 findings in 1 of 1 tools.")


# ---- refs

PROMPT = """\
Use `count_words` first, then `count_word`, and main__delete_page.
Never call main__delete_pages, or mcp__acme__main__gone! "echo" is fine, so is `os.path.join`.
    view.call("deletePage", {}); catalog.names["search-web"]; main.py
"""


def test_refs_names_dead_references_with_their_place(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "prompts"
    (folder / ".hidden").mkdir(parents=True)
    (folder / "chat.md").write_text(PROMPT)
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\xff\xfe `count_word`")
    (folder / ".hidden" / "x.md").write_text("`count_word`")
    ran = run("refs", str(folder))
    assert ran.code == 1
    assert ran.out.replace(f"{folder}/", "").splitlines() == snapshot(
        [
            "chat.md:1:32: no tool 'count_word'; did you mean 'count_words'?",
            "chat.md:2:12: no tool 'main__delete_pages'; did you mean 'main__delete_page'?",
            "chat.md:2:35: no tool 'main__gone'",
            "chat.md:3:16: no tool 'deletePage'; did you mean 'delete_page'?",
            "chat.md:3:49: no tool 'search-web'; did you mean 'search_web'?",
            "5 dead references in 2 files.",
        ]
    )
    assert len(answer(run("refs", str(folder), "--json"))["references"]) == 5  # type: ignore[arg-type]


LISTED = """\
Allowed: mcp__acme__count_words, mcp__acme__main__count_words, mcp__acme__*, mcp__other__count_word.
Use mcp__acme__count_word for texts (quoted "mcp__acme__gone_tool", `mcp__acme__deleted`), or mcp__acme__old_echo.
tools: [mcp__my-shop__echo, mcp__main__echo, mcp__main__ecko] prefixed_mcp__acme__gone path/mcp__acme__gone
"""


def test_refs_finds_what_a_team_took_away_in_the_allow_lists_of_an_sdk(run: Run, folder: Path, tmp_path: Path) -> None:
    config = (
        (folder / "pegboard.yaml")
        .read_text()
        .replace("  - name: echo\n", "  - name: echo\n    renamed_from: old_echo\n")
    )
    (folder / "pegboard.yaml").write_text(config)
    (tmp_path / "prompt.md").write_text(LISTED)
    ran = run("refs", str(tmp_path / "prompt.md"))
    assert ran.out.replace(f"{tmp_path}/", "").splitlines() == snapshot(
        [
            "prompt.md:2:5: no tool 'mcp__acme__count_word'; did you mean 'mcp__acme__count_words'?",
            "prompt.md:2:46: no tool 'mcp__acme__gone_tool'",
            "prompt.md:2:70: no tool 'mcp__acme__deleted'; did you mean 'mcp__acme__delete_page'?",
            "prompt.md:2:95: 'mcp__acme__old_echo': it was renamed, write 'mcp__acme__echo'",
            "prompt.md:3:46: no tool 'mcp__main__ecko'; did you mean 'mcp__main__echo'?",
            "5 dead references in 1 file.",
        ]
    )


def test_refs_names_tools_that_are_past_their_last_day(run: Run, folder: Path, tmp_path: Path) -> None:
    config = (folder / "pegboard.yaml").read_text()
    for last, day in (("2020-01-01", "echo"), ("2999-01-01", "count_words")):
        config = config.replace(f"  - name: {day}\n", f"  - name: {day}\n    deprecated: {last}\n")
    config = config.replace("deprecated: 2020-01-01\n", "deprecated: 2020-01-01\n    replaced_by: count_words\n")
    (folder / "pegboard.yaml").write_text(config)
    (tmp_path / "prompt.md").write_text("`count_words`, then `echo`\nmain__echo and mcp__acme__echo\n")
    ran = run("refs", str(tmp_path / "prompt.md"))
    assert ran.code == 1
    assert ran.out.replace(f"{tmp_path}/", "").splitlines() == [
        "prompt.md:1:22: 'echo': it ended on 2020-01-01, write 'count_words'",
        "prompt.md:2:1: 'main__echo': it ended on 2020-01-01, write 'count_words'",
        "prompt.md:2:16: 'mcp__acme__echo': it ended on 2020-01-01, write 'count_words'",
        "3 dead references in 1 file.",
    ]


def test_refs_to_what_exists_end_well(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("`count_words`, main.delete_page, `getTools`, 'something_else', echo")
    assert run("refs", str(tmp_path / "a.md")) == Ran(code=0, out="0 dead references in 1 file.\n", err="")


@pytest.mark.parametrize("words", [(), ("/nowhere/at/all",)])
def test_refs_wants_files_that_exist(run: Run, words: tuple[str, ...]) -> None:
    assert run("refs", *words).code == 2


def test_why_tells_what_a_former_name_is_called_now_and_when_it_ends(run: Run, tmp_path: Path) -> None:
    config = """\
    tools:
      - {name: new, type: internal, handler: "python:tests.cli.workshop:shout", renamed_from: old,
         deprecated: 2027-01-01, replaced_by: newer, parameters: {type: object, properties: {}}}
    """
    (tmp_path / "old.yaml").write_text(config)
    told = answer(run("why", "old", "--config", str(tmp_path / "old.yaml"), "--json"))
    assert told["notes"] == [
        "'old' is now called 'new'",
        "Deprecated: it ends on 2027-01-01; use 'newer' instead.",
    ]
    assert "is now called 'new'" in run("why", "old", "--config", str(tmp_path / "old.yaml")).out
