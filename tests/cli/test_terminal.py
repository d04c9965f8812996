"""What is written is inert: no control sequence, no hidden character, no markup survives."""

import io
import sys
import unicodedata

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard.cli.terminal import Column, Terminal, json_text, safe

HOSTILE = "\x1b[31mred\x1b]0;title\x07\x9b2J\u202eexe.txt\u200b\u2066\r\n[bold red]x[/] :boom:\x00\x7f\U000e0041\ud800"


class Screen(io.StringIO):
    """A terminal of 60 columns."""

    def isatty(self) -> bool:
        return True


def test_safe_spells_out_what_a_terminal_obeys_or_hides() -> None:
    assert safe(HOSTILE) == (
        r"\x1b[31mred\x1b]0;title\x07\x9b2J\u202eexe.txt\u200b\u2066\r\n[bold red]x[/] :boom:\x00\x7f\U000e0041\ud800"
    )


def test_safe_keeps_line_breaks_only_where_lines_are_wanted() -> None:
    assert safe("a\n\tb\r") == r"a\n\tb\r"
    assert safe("a\n\tb\r", lines=True) == "a\n\tb\\r"


def test_safe_leaves_every_script_and_emoji_alone() -> None:
    text = "naïve Ω 日本語 می‌خواهم 👩‍👩‍👧 é ✓"
    assert safe(text) == text


@given(st.text())
def test_safe_leaves_no_control_or_format_character(text: str) -> None:
    kept = {"\u200c", "\u200d"}
    left = {c for c in safe(text) if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - kept
    # Arabic and other scripts have visible format characters of their own.
    assert not {c for c in left if ord(c) < 0x600 or 0x2000 <= ord(c) < 0x2100 or ord(c) >= 0xE0000}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8")),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    )
)
def test_json_is_safe_and_means_the_same(value: object) -> None:
    written = json_text(value)
    assert safe(written, lines=True) == written
    assert orjson.loads(written) == value


def test_a_table_reads_no_markup_and_no_emoji_names_and_obeys_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    screen = Screen()
    terminal = Terminal(out=screen, err=io.StringIO())
    terminal.table([Column(head="[red]A[/]"), Column(head="B")], [["[link=https://x]a[/link]", ":boom:\x1b[2J"]])
    terminal.pairs([("[b]", "\x1b[1m[bold]\nsecond")])
    terminal.styled("[red]x\x9b", "green")
    written = screen.getvalue()
    for text in ("[red]A[/]", "[link=https://x]a[/link]", r":boom:\x1b[2J", "[b]", r"\x1b[1m[bold]", r"[red]x\x9b"):
        assert text in written
    assert not {"\x1b]", "\x9b", "\x1b[2J"} & {written[i : i + n] for n in (1, 2, 4) for i in range(len(written))}


@pytest.mark.parametrize("width", [30, 60, 200])
def test_a_table_is_no_wider_than_the_terminal_and_loses_nothing(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    screen = Screen()
    long = "x" * 70
    Terminal(out=screen, err=io.StringIO()).table([Column(head="A"), Column(head="B")], [[long, "short"]])
    written = screen.getvalue()
    assert max(map(len, written.splitlines())) <= width or "\x1b" in written
    assert written.count("x") == 70


def test_colours_are_for_terminals_and_not_where_no_color_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    screen, pipe, grey = Screen(), io.StringIO(), Screen()
    Terminal(out=screen, err=io.StringIO()).styled("x", "green")
    Terminal(out=pipe, err=io.StringIO()).styled("x", "green")
    monkeypatch.setenv("NO_COLOR", "1")
    Terminal(out=grey, err=io.StringIO()).styled("x", "green")
    assert (screen.getvalue(), pipe.getvalue(), grey.getvalue()) == ("\x1b[32mx\x1b[0m\n", "x\n", "x\n")


def test_a_terminal_that_cannot_show_a_character_does_not_end_the_command() -> None:
    ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    Terminal(out=ascii_only, err=sys.stderr).say("ü")
    ascii_only.flush()
    assert ascii_only.buffer.getvalue() == b"\\xfc\n"  # pyright: ignore[reportAttributeAccessIssue]
