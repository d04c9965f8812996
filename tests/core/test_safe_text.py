"""Safe text: characters that a terminal or a browser interprets or hides are spelled out."""

import pytest

from pegboard.core.safe_text import safe


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("one\ntwo\tthree\rfour", "one\\ntwo\\tthree\\rfour"),
        ("pay\u202eevil", "pay\\u202eevil"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("zero\u200dwidth", "zero\u200dwidth"),
    ],
)
def test_what_a_terminal_interprets_or_hides_is_spelled_out(text: str, shown: str) -> None:
    assert safe(text) == shown


def test_lines_and_tabs_may_stay() -> None:
    assert safe("one\n\ttwo\r", lines=True) == "one\n\ttwo\\r"
