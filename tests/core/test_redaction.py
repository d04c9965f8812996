"""Redaction of whole values gives what redaction of each text gives, and holds nobody for it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pegboard import Catalog, Secret, TextContent, ToolContext, ToolError, ToolResult
from pegboard.core import literal_search
from pegboard.core.literal_search import LiteralSearch
from pegboard.core.redaction import Redactor
from pegboard.core.view import View
from pegboard.egress.credential_redaction import CredentialRedactor
from tests.core.text_by_text import TextByText, any_of
from tests.evil.observing import observed
from tests.timing import CPU, within

KEY = "-----BEGIN KEY-----\n" + "\n".join(f"{line}MIIEvQ/IBAD+NBgkq=" * 4 for line in "abc") + "\n-----END KEY-----\n"
VALUES = (
    "hunter2-Zx9+value/tail~",
    KEY,
    'a"quoted\\one\n',
    "ends in a slash\\",
    "%41%2F literal",
    "\\u0041 Alert",
    "tab\tand \U0001f600 é",
    "漢字漢字",
    "\x00\x01\x02\x1f",
    '","x":"',
    "12345678",
    "null",
    "aaaa",
    "aaaaaaaaaaab",
    "p&ss<w>o'rd`$^|()[]{}?*+.#",
    "<<>><>",
    "abc",
)
ESCAPES = (
    lambda unit: f"\\u{unit:04x}",
    lambda unit: f"\\\\\\u{unit:04X}",
    lambda unit: f"%{unit:02x}" if unit < 0x80 else chr(unit),
    lambda unit: f"%2525{unit:02X}" if unit < 0x80 else chr(unit),
    lambda unit: f"&#0{unit};",
    lambda unit: f"&amp;#x{unit:x};",
    lambda unit: json.dumps(chr(unit))[1:-1],
    lambda unit: {0x26: "&amp;", 0x3C: "&lt;", 0x2F: "\\/", 0x22: '\\\\"', 0x0A: "\\n"}.get(unit, chr(unit)),
    lambda unit: {0x22: "&quot;", 0x27: "&apos;"}.get(unit, chr(unit)),
    chr,
)
NOISE = (
    "", '"', "\\", "\\\\", "\\u0022", "\n", "\x02", "\x00", "%", "&", ",", ":", "[redacted]", "%25", "é", "\ud800", "a",
)  # fmt: skip


def units_of(text: str) -> list[int]:
    raw = text.encode("utf-16-le")
    return [int.from_bytes(raw[at : at + 2], "little") for at in range(0, len(raw), 2)]


@st.composite
def written(draw: st.DrawFn, secrets: list[str], forms: tuple[str, ...]) -> str:
    """A secret in a spelling that is looked for, whole or half; with characters of it as escapes; noise."""
    kind = draw(st.integers(0, 4))
    if kind == 0 or not forms:
        return draw(st.sampled_from(NOISE) | st.text(max_size=4))
    if kind == 1:
        return draw(st.sampled_from(forms))
    if kind == 2:
        form = draw(st.sampled_from(forms))
        at = draw(st.integers(0, len(form)))
        return form[:at] if draw(st.booleans()) else form[at:]
    units = units_of(draw(st.sampled_from(secrets)))
    chosen = draw(st.lists(st.sampled_from(ESCAPES), min_size=1, max_size=3))
    text = "".join(chosen[at % len(chosen)](unit) for at, unit in enumerate(units))
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if draw(st.booleans()) else text


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[str], Any]:
    secrets = draw(st.lists(st.sampled_from(VALUES), max_size=4, unique=True))
    forms = Redactor(map(Secret, secrets)).forms
    texts = st.lists(written(secrets, forms), max_size=4).map("".join)
    scalars = texts | st.sampled_from((None, True, 0, -1, 2**63, 2**70, 12345678, 0.5, float("nan")))
    few = scalars | st.lists(scalars, max_size=5) | st.dictionaries(texts, scalars, max_size=4)
    return secrets, draw(
        st.recursive(
            scalars,
            lambda inner: (
                st.lists(inner, max_size=5)
                | st.dictionaries(texts, inner, max_size=4)
                # Many alike, of which one or two are not; not of what holds many already, which may be millions then.
                | st.tuples(st.lists(scalars, max_size=2), st.integers(60, 200), few).map(
                    lambda some: [some[2]] * some[1] + some[0] + [some[2]]
                )
                | st.tuples(few, st.integers(60, 200)).map(lambda some: {f"{at}": some[0] for at in range(some[1])})
            ),
            max_leaves=8,
        )
    )


@given(cases())
@example((["hunter2-Zx9+value/tail~"], ["hunter2-Zx9", "+value/tail~"]))
@example((["ends in a slash\\", 'a"quoted\\one\n'], ["%65nds in a slash\\", "x"]))
@example((["\\u0041 Alert"], ["\\u0041 Aler%74"]))
@example((["hunter2-Zx9"], ["\x00".join("hunter2-Zx9")]))
@example((['a"quoted\\one\n'], {'\\u0061"quoted\\one\n': "", "a": ['a\\"quoted\\\\one\\n']}))
@example((["a\\\nb"], ["%61\\\nb", "\\"]))
@example((["\x00\x01\x02\x1f"], ["\x00\x01\x02\x1f", "\\u0000\x01\x02\\u001f"]))
def test_a_value_is_redacted_as_each_of_its_texts_would_be(case: tuple[list[str], Any]) -> None:
    secrets, value = case
    known = [*map(Secret, secrets)]
    forms = Redactor(known).forms
    assert repr(Redactor(known).value(value)) == repr(TextByText(secrets, forms).value(value))
    expected = TextByText(secrets, forms, keys=secrets).value(value)
    assert repr(CredentialRedactor(known).value(value)) == repr(expected)


@given(
    st.lists(st.text("ab-\n", min_size=1, max_size=200), min_size=1, max_size=8, unique=True),
    st.lists(st.text("ab-\n", max_size=40), max_size=6),
    st.data(),
)
def test_texts_are_found_where_re_finds_them(texts: list[str], noise: list[str], data: st.DataObject) -> None:
    parts = data.draw(st.lists(st.sampled_from([*texts, *noise]), max_size=20))
    text, search = "".join(parts), LiteralSearch(texts)
    spans = [match.span() for match in any_of(texts).finditer(text)]
    with pytest.MonkeyPatch.context() as pieces:
        pieces.setattr(literal_search, "_PIECE_CHARS", data.draw(st.integers(1, 50)))
        assert search.spans(text) == spans
    assert search.spans(text) == spans
    assert search.is_in(text) == bool(spans)
    assert search.may_be_in(text) or not spans
    assert search.replaced(text, "\\1") == any_of(texts).sub(r"\\1", text)


def test_every_character_stands_for_itself() -> None:
    for char in (*map(chr, range(0x250)), "\u2028", "\ufeff", "漢", "\U0001f600"):
        text = f"{char}x{char}{char}"
        search = LiteralSearch([text])
        assert search.is_in(f"..{text}.."), repr(char)
        assert not search.may_be_in(text.replace("x", "y")), repr(char)


def test_what_has_no_secret_is_shared_as_it_is() -> None:
    value = {"rows": [{"id": at, "name": f"name {at}\n"} for at in range(1_000)], "when": object()}
    redactor = Redactor([Secret("hunter2-Zx9")])
    rows = value["rows"]
    assert redactor.value(rows) is rows
    clean = redactor.value({**value, "rows": [*rows, {"id": "hunter2-Zx9"}]})
    assert clean["rows"][0] is rows[0]
    assert clean["rows"][-1] == {"id": "[redacted]"}
    assert clean["when"] is value["when"]


def test_texts_that_follow_each_other_are_searched_as_one_for_all_that_crosses_their_ends() -> None:
    redactor = Redactor([Secret("hunter2-Zx9"), Secret("p&ss/word")])
    assert redactor.texts(["a hunt", "er2-Zx9 %70", "&ss/word b"]) == [
        "a [redacted]",
        "[redacted] [redacted]",
        "[redacted] b",
    ]
    assert redactor.texts(["hunter2-Zx9", "hunter2", "x"]) == ["[redacted]", "hunter2", "x"]
    assert Redactor([]).texts(["a", "b"]) == ["a", "b"]


def test_a_text_says_from_where_it_may_be_the_beginning_of_a_secret() -> None:
    redactor = Redactor([Secret("hunter2-Zx9")])
    expected = {"a hunt": 2, "a hunter3": 9, "a %68un": 2, "a %": 2, "50% of": 6, "a \\x6": 2, "R&D lab": 7, "": 0}
    assert {text: redactor.unfinished(text) for text in expected} == expected
    assert Redactor([]).unfinished("hunt") == 4


SECRETS = [Secret(f"sk-{at}{'Zx9+value/tail~' * 2}{at * 7_919}") for at in range(20)]
LARGE: dict[str, Any] = {
    "records": [{"id": at, "name": f"name {at}", "unit": "kWh"} for at in range(18_000)],
    "texts": [f"{at:x}" for at in range(120_000)],
    "texts with escapes": [f"{at:x}\n" for at in range(90_000)],
    "keys": {f"key {at}": at for at in range(50_000)},
    "one text": 'lorem\nipsum "dolor" 100% ' * 40_000,
    "one secret among texts": [*(f"{at:x}" for at in range(120_000)), f"Bearer {SECRETS[3].reveal()}"],
}


def giving(value: Any, *secrets: Secret) -> View:
    catalog = Catalog()
    catalog.add_secrets(*secrets)

    @catalog.tool
    async def give() -> object:
        """Give it."""
        return value

    return catalog.view(ToolContext(budget=None))


async def longest_block_s(view: View) -> float:
    blocks: list[float] = []
    for _ in range(4):
        async with observed() as cost:
            assert (await view.call("give")).error is None
        blocks.append(cost.longest_block_s)
    return min(blocks)


@pytest.mark.parametrize("shape", LARGE)
async def test_a_large_result_is_searched_for_secrets_in_a_time_like_the_one_it_takes_to_make(shape: str) -> None:
    value = LARGE[shape]
    # A text costs next to nothing to make: it is held against a list of the same length. Machines differ in what
    # they make fast: 1 to 4 times was seen, 10 to 20 times where each text was searched for each secret.
    ratios: list[float] = []
    # Others run beside it: it holds if it holds in one of some tries.
    while len(ratios) < 6 and min(ratios, default=9.0) >= 7:
        made_s = max([await longest_block_s(giving(one)) for one in (value, LARGE["texts"])])
        ratios.append(await longest_block_s(giving(value, *SECRETS)) / made_s)
    assert min(ratios) < 7


def test_the_beginning_of_a_key_a_hundred_thousand_times_takes_a_time_in_proportion() -> None:
    redactor = CredentialRedactor([SECRETS[0]])
    with within(1.0, CPU):
        assert redactor.text(SECRETS[0].reveal()[:8] * 100_000) == "[redacted]" * 100_000


async def test_what_is_too_large_is_refused_before_it_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    monkeypatch.setattr(LiteralSearch, "may_be_in", lambda search, text: searched.append(text))
    result = await giving("x" * 2_000_000, *SECRETS).call("give")
    assert result.error is not None
    assert result.error.kind == "result_too_large"
    assert max(map(len, searched)) < 1_000


async def test_what_is_too_large_once_secrets_are_out_of_it_is_refused() -> None:
    result = await giving("abcd" * 200_000, Secret("abcd")).call("give")
    assert result.error is not None
    assert result.error.kind == "result_too_large"


async def test_a_result_made_by_hand_is_cleaned_in_each_of_its_members() -> None:
    secret = "hunter2-Zx9"
    error = ToolError(kind="tool_error", message=f"not {secret}", hint=secret, details={"tried": [secret]})
    made = ToolResult((TextContent(secret),), {"a": secret}, True, error, {"b": secret}, True)
    result = await giving(made, Secret(secret)).call("give")
    assert secret not in repr(result)
    assert (result.meta, result.structured) == ({"b": "[redacted]"}, {"a": "[redacted]"})
    assert result.error is not None
    assert result.error.details == {"tried": ["[redacted]"]}


@pytest.mark.parametrize("secret", [KEY, "".join(f"hunter{at}-Zx9+value" for at in range(12))])
def test_a_long_secret_is_found_among_what_begins_as_it_does(secret: str) -> None:
    redactor = Redactor([Secret(secret)])
    text = secret[:-4] + "\n" + secret[:200] + secret + "x" * 20_000 + secret[:40] + secret + "x" * 9_000
    clean = secret[:-4] + "\n" + secret[:200] + "[redacted]" + "x" * 20_000 + secret[:40] + "[redacted]" + "x" * 9_000
    assert redactor.text(text) == clean
    assert redactor.value({"a": [text], "b": text[:90]}) == {"a": [clean], "b": text[:90]}


def test_a_text_that_no_engine_takes_is_looked_at_all_the_same() -> None:
    redactor = Redactor([Secret("hunter2 \U0001f600")])
    halves = "hunter2 \ud83d"
    assert redactor.value([halves + "\ude00", halves, {halves: 2**70}]) == ["[redacted]", halves, {halves: 2**70}]


def test_a_long_list_with_a_secret_in_a_late_place_is_cleaned_there_and_in_no_other() -> None:
    redactor = Redactor([Secret("hunter2-Zx9")])
    listed: list[Any] = [*range(500), "\\u0068unter2-Zx9", {f"k{at}": "\n" for at in range(200)}]
    assert redactor.value({"a\nb": listed})["a\nb"][:501] == [*range(500), "[redacted]"]
    assert redactor.value(["\\u0069unter2-Zx9", "%41\\"]) == ["\\u0069unter2-Zx9", "%41\\"]
    listed[-1]["k7"] = ["a\\", '"\x02hunter2-Zx9"']
    clean = redactor.value({"a\nb": listed})["a\nb"]
    assert clean[:501] == [*range(500), "[redacted]"]
    assert clean[-1]["k7"] == ["a\\", '"\x02[redacted]"']
    assert [*clean[-1]] == [*listed[-1]]


async def test_a_secret_that_begins_in_one_block_and_ends_in_the_next_is_in_neither() -> None:
    blocks = ToolResult(content=(TextContent("key: s3cr3t-"), TextContent("canary!")))
    result = await giving(blocks, Secret("s3cr3t-canary")).call("give")
    shown = [block.text for block in result.content if isinstance(block, TextContent)]
    assert len(shown) == 2
    assert not any(part in text for text in shown for part in ("s3cr3t", "canary"))


async def test_blocks_without_a_secret_between_them_are_given_as_they_are() -> None:
    blocks = ToolResult(content=(TextContent("one "), TextContent("two")))
    result = await giving(blocks, Secret("s3cr3t-canary")).call("give")
    assert result.content == blocks.content
