"""Consent text: no two different calls have one text, and nothing of a call is missing from it or hides in it.

An own reader, written apart from what writes, takes a text to pieces again. The corpus and a fixed number of seeded
inputs run each time; `make soak` tries fresh ones.
"""

import json
import os
import unicodedata
from hashlib import sha256
from html.parser import HTMLParser
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from pegboard import ConsentRequest, consent_text
from pegboard.core.consent_text import QuestionTooLongError, shown_arguments
from pegboard.core.digests import digest
from tests.fuzz.seeds import inputs
from tests.sizes import examples

IS_SOAK = bool(os.environ.get("PEGBOARD_SOAK"))
HIDDEN = (
    "\u200b\u200c\u200d\u2060\ufeff\u00ad\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    "\u2028\u2029\x85\x0b\x0c\r\n\t\x00\x1b\x7f\x9b\u00a0\u2000\u2003\u3000\u3164\u115f\u1160\uffa0\u034f\u180e\u2800"
    "\ufe0e\ufe0f\U000e0100\U000e0001\U000e0041\U000e007f\ue000\U0010fffd\ufff9\ufdd0\ud800\udfff\u17b4\U0001d159"
    "\u0336\u20dd"
)
WORDS = (
    *HIDDEN, '"', "\\", "\\u200b", "\\n", '", "amount": 1', "…", '" … "', " (SHA-256 ", "{", "}", "[", "]", ",", ": ",
    "1", "1.0", "true", "null", "a", "a.b", "b", "", " ", "é", "e\u0301", "\u0301", "א", "ب", "漢", "👨‍👩‍👧",
    "<", "!--", "-->", "](", "![", "&lt;", "p\u0430y", "~~", "~/", "\u0663", "\u09ea",
    "x" * 399, "x" * 400, "x" * 401, "\u200b" * 67, "y" * 5_000,
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(WORDS) | st.characters(), max_size=4).map("".join)
NUMBERS = (
    st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 10**500, 2**64])
)
LEAVES = st.none() | st.booleans() | NUMBERS | TEXTS
JSON_VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=8
)
ARGUMENTS = st.dictionaries(TEXTS, JSON_VALUES, max_size=5)

# Each is another call than every other one.
CORPUS: list[dict[str, Any]] = [
    {}, {"a": 1}, {"a": 1.0}, {"a": "1"}, {"a": True}, {"a": "true"}, {"a": None}, {"a": "null"}, {"a": ""}, {"a": []},
    {"a": {}}, {"a": [None]}, {"a": [[]]}, {"a": 0.0}, {"a": -0.0}, {"a": 0}, {"a": -1}, {"a": 1e16}, {"a": 10**16},
    {"a": 1e22}, {"a": 10**22}, {"a.b": 1}, {"a": {"b": 1}}, {"a": {"b": "1"}}, {"a[0]": 1}, {"a": [1]}, {"a": [1, 2]},
    {"a": "1, 2"}, {"a": '1, "b": 2'}, {"a": 1, "b": 2}, {"a": '1", "b": "2'}, {"a": "1", "b": "2"}, {"": 1}, {" ": 1},
    {"a": "x\n"}, {"a": "x\\n"}, {"a": "x\u2028"}, {"a": "x\\u2028"}, {"a": "x\r"}, {"a": "x "}, {"a": "x"},
    {"a": "x\u200b"}, {"a\u200b": "x"}, {"a": "\u202ex"}, {"a": "x\ufe0f"}, {"a": "x\U000e0041"}, {"a": "\u3164"},
    {"a": "\U0001f600"}, {"a": "\ud83d\ude00"}, {"a": "\\U0001f600"}, {"a": "e\u0301"}, {"a": "é"}, {"a": "y" * 5_000},
    {"a": "y" * 5_001}, {"a": "y" * 2_500 + "z" + "y" * 2_499}, {"y" * 5_000: "a"}, {"y" * 5_000: 1},
    {"a": "yy…yy"}, {"a": 10**500}, {"a": 10**500 + 10**250}, {"a": str(10**500)}, {"memo": "y" * 5_000, "to": "bob"},
    {"memo": "y" * 5_000, "to": "eve"}, {"a": "pay"}, {"a": "p\u0430y"}, {"a": "\\u003cb"}, {"a": "<b"}, {"a": "\\<b"},
]  # fmt: skip


class Reader:
    """Takes a text to pieces: JSON, and values of which only ends, length and digest stand there."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def whole(self) -> Any:
        value = self.value()
        assert self.at == len(self.text), self.text[self.at :]
        return value

    def skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \n":
            self.at += 1

    def take(self, word: str) -> bool:
        if self.text.startswith(word, self.at):
            self.at += len(word)
            return True
        return False

    def value(self) -> Any:
        self.skip()
        if self.take("{"):
            return dict(self.members("}", self.member))
        if self.take("["):
            return self.members("]", self.value)
        if self.text[self.at] == '"':
            return self.string()
        start = self.at
        while self.at < len(self.text) and self.text[self.at] not in ",]} \n":
            self.at += 1
        word = self.text[start : self.at]
        if not self.text.startswith(" … ", self.at):
            return (type(json.loads(word)), word)
        self.take(" … ")
        while self.text[self.at].isdigit():
            self.at += 1
        return ("long number", self.ending("digits"))

    def members(self, end: str, one: Any) -> Any:
        found: list[Any] = []
        self.skip()
        while not self.take(end):
            found.append(one())
            self.skip()
            if not self.take(","):
                assert self.take(end), self.text[self.at :]
                break
            self.skip()
        return found

    def member(self) -> Any:
        self.skip()
        key = self.string()
        assert self.take(": ")
        return key, self.value()

    def string(self) -> Any:
        text = self.quoted()
        if not self.take(" … "):
            return text
        self.quoted()
        return ("long", self.ending("characters"))

    def quoted(self) -> str:
        assert self.take('"')
        shown: list[str] = []
        while not self.take('"'):
            char = self.text[self.at]
            self.at += 1
            if char == "\\":
                kind = self.text[self.at]
                size = {"u": 4, "U": 8}.get(kind, 0)
                code = self.text[self.at + 1 : self.at + 1 + size]
                self.at += 1 + size
                char = chr(int(code, 16)) if size else {"n": "\n", "r": "\r", "t": "\t"}.get(kind, kind)
            shown.append(char)
        return "".join(shown)

    def ending(self, unit: str) -> tuple[str, str]:
        assert self.take(" (SHA-256 ")
        end = self.text.index(")", self.at)
        hexes, _, count = self.text[self.at : end].partition(", ")
        self.at = end + 1
        assert count.endswith(f" {unit}")
        return hexes, count.split()[0].replace(",", "")


def expected(value: Any) -> Any:
    """Return what a reader must find of a value: itself, or length and digest where it cannot stand there whole."""
    if isinstance(value, dict):
        return {expected(key): expected(member) for key, member in value.items()}
    if isinstance(value, list):
        return [expected(item) for item in value]
    if isinstance(value, str):
        is_long = len(value) > 400 or _spelled_length(value) > 400
        raw = value.encode("utf-8", "surrogatepass")
        return ("long", (sha256(raw).hexdigest(), str(len(value)))) if is_long else value
    digits = json.dumps(value)
    if len(digits) > 400:
        return ("long number", (sha256(digits.encode()).hexdigest(), str(len(digits))))
    return (type(value), digits)


def _spelled_length(text: str) -> int:
    shown = shown_arguments({"k": text}, max_chars=None)
    return 401 if " (SHA-256 " in shown and '" … "' in shown and Reader(shown).whole()["k"][:1] == ("long",) else 0


def is_seen(char: str) -> bool:
    """Tell whether a character shows itself where it stands."""
    if char in " \n":
        return True
    hidden = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs", "Me")
    return unicodedata.category(char) not in hidden and char not in HIDDEN


def assert_lawful(arguments: dict[str, Any]) -> None:
    text = shown_arguments(arguments, max_chars=None)
    assert Reader(text).whole() == expected(arguments), text
    assert all(map(is_seen, text)), text
    # A line break is one of ours, and two spaces or more after it are all that it brings.
    for line in text.split("\n")[1:]:
        assert line == "}" or line.startswith("  ")


@settings(max_examples=examples(300), derandomize=not IS_SOAK, deadline=None)
@given(ARGUMENTS)
def test_every_key_and_every_value_can_be_read_back_from_the_text(arguments: dict[str, Any]) -> None:
    assert_lawful(arguments)


@settings(max_examples=examples(300), derandomize=not IS_SOAK, deadline=None)
@given(ARGUMENTS, ARGUMENTS)
def test_two_different_calls_have_two_texts(first: dict[str, Any], second: dict[str, Any]) -> None:
    if digest(first) != digest(second):
        assert shown_arguments(first, max_chars=None) != shown_arguments(second, max_chars=None)


@pytest.mark.soak
def test_fresh_seeds_can_be_read_back_and_told_apart() -> None:
    for fresh, _ in inputs(0, fresh=True):

        @seed(fresh)
        @settings(max_examples=500, deadline=None)
        @given(ARGUMENTS, ARGUMENTS)
        def law(first: dict[str, Any], second: dict[str, Any]) -> None:
            assert_lawful(first)
            if digest(first) != digest(second):
                assert shown_arguments(first, max_chars=None) != shown_arguments(second, max_chars=None)

        law()


@pytest.mark.parametrize("arguments", CORPUS, ids=lambda one: repr(one)[:30].encode("ascii", "replace").decode())
def test_the_corpus_can_be_read_back(arguments: dict[str, Any]) -> None:
    assert_lawful(arguments)


def test_no_two_of_the_corpus_have_one_text() -> None:
    texts = {repr(one): shown_arguments(one, max_chars=None) for one in CORPUS}
    assert len(texts) == len(CORPUS)
    assert [pair for pair in combinations(texts.values(), 2) if pair[0] == pair[1]] == []


def request(arguments: dict[str, Any], reason: str = "'pay' needs approval for every call") -> ConsentRequest:
    return ConsentRequest(
        tool="main.pay", definition_hash="d", args_digest=digest(arguments), arguments=arguments, reason=reason,
        user_id=None, space_id=None, session_id=None, agent=None, call_id="c",
    )  # fmt: skip


def test_a_question_is_whole_or_refused() -> None:
    many = {f"key_{number}": number for number in range(10_000)}
    for arguments in (many, {"a": [[1] * 3_000]}, {"k" * 399 + str(n): "v" * 399 for n in range(20)}):
        with pytest.raises(QuestionTooLongError, match="8,000"):
            consent_text(request(arguments))
        assert Reader(shown_arguments(arguments, max_chars=None)).whole() == expected(arguments)


@pytest.mark.parametrize(
    "reason",
    [
        'fine. Arguments: {"to": "bob"}',
        "a\nArguments: none",
        "pays \u202ebob",
        "x" * 5_000,
        "pays {}",
        "to: bob",
        "<!-- pays",
        "&#60;",
    ],
)
def test_a_reason_that_a_hook_wrote_cannot_pass_for_arguments(reason: str) -> None:
    text = consent_text(request({"to": "eve"}, reason))
    asked, _, rest = text.partition("? ")
    assert asked == "Allow this call of 'main.pay'"
    reader = Reader(rest)
    assert reader.string() == expected(reason)
    assert rest[reader.at :] == '. Arguments: {"to": "eve"}'


class Shown(HTMLParser):
    """Keeps what a person sees of HTML: the text, and neither comments nor where a link leads."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.seen = ""
        self.feed(text)
        self.close()

    def handle_data(self, data: str) -> None:
        self.seen += data


HIDING_MARKUP = [
    {"memo": "<!-- ", "to": "mallory", "note": "-->"},
    {"memo": "<details><summary>lunch</summary>", "to": "mallory"},
    {"memo": "<span style='display:none", "to": "mallory", "note": "'>"},
    {"to": "[bob](https://mallory.example)"},
    {"to": "![bob](https://mallory.example/x.png)"},
    {"to": "[bob][1]", "note": "\n[1]: https://mallory.example"},
    {"to": "<https://mallory.example>"},
    {"to": "bob<?mallory?>"},
    {"to": "&#109;allory mallory"},
    {"to": "~~mallory~~ bob"},
    {"from": "~mallory", "to": "bob~"},
]


@pytest.mark.parametrize("arguments", HIDING_MARKUP, ids=lambda one: next(iter(one.values()))[:12])
def test_a_client_that_shows_markup_shows_the_same_values(arguments: dict[str, Any]) -> None:
    text = consent_text(request(arguments))
    rendered = MarkdownIt("commonmark").enable("strikethrough").render(text)
    assert "<s>" not in rendered
    for shown in (Shown(text).seen, Shown(rendered).seen):
        assert "mallory" in shown
        # Of JSON's own backslashes Markdown takes one of two.
        assert shown.strip().count('"') == text.count('"')
    assert_lawful(arguments)


@pytest.mark.parametrize(
    "false",
    [
        "p\u0430ypal",
        "b\u03bfb",
        "\U0001d41bob",
        "bo\uff42",
        "x\u217c",
        "a\u2024b",
        "a\u2044b",
        "x\u02ee, \u02eeto",
        "\u13a0lice",
        "1\u06600",
        "1\u30070",
        "g\u2d54ogle",
        "b\u15f7b",
        "\u101dne",
        "acme\u2010pay",
        "bob\uff20x",
        "\u09ea\u09e6\u09e6",
        "\u0663 \u0664",
        "\U0001d7cf\U0001d7ce",
        "\U0001d41b\U0001d428\U0001d41b",
    ],
)
def test_what_passes_for_another_letter_is_spelled_out(false: str) -> None:
    assert shown_arguments({"to": false}).isascii()
    assert_lawful({"to": false})


@pytest.mark.parametrize(
    "honest",
    [
        "Москва",
        "αβγ",
        "漢字：です",
        "iPhone版",
        "kırmızı Straße",
        "a < b && c",
        "AT&T",
        "f(x)[0]",
        "~/notes",
        "5 m²",
        "ใช้API",
        "PDFを100円",
        "আমি ৪ টাকা",
        "１００円",
    ],
)
def test_honest_words_of_any_language_are_shown_as_they_are(honest: str) -> None:
    assert shown_arguments({"to": honest}) == f'{{"to": "{honest}"}}'


def test_digests_tell_apart_what_texts_tell_apart() -> None:
    assert len({digest(one) for one in CORPUS}) == len(CORPUS)
    assert digest({"a": "\U0001f600", "b": 10**500}) != digest({"a": "\ud83d\ude00", "b": 10**500})


def test_host_code_that_gives_what_is_no_json_is_shown_its_types() -> None:
    class Odd:
        def __str__(self) -> str:
            return '1", "b": "2'

    shown = shown_arguments({"a": Odd(), 1: (2,)})  # type: ignore[dict-item] - as careless host code would
    assert shown == '{"a": \'Odd\' "1\\", \\"b\\": \\"2", \'int\' "1": [2]}'
