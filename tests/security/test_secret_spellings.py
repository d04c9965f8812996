"""Secrets in every simple spelling: a canary comes out of no door, whole or split over two blocks."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable
from urllib.parse import quote

import pytest

from pegboard import CallError, Catalog, ResourceContent, Secret, TextContent, ToolContext, ToolResult, http_app
from pegboard.agents.text_redaction import TextStream
from pegboard.core.redaction import Redactor
from tests.server.doors import inside, post

CANARY = "Zx9+tail/hunter2~7Qé"
SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "reversed": lambda text: text[::-1],
    "hex": lambda text: text.encode().hex(),
    "upper-case hex": lambda text: text.encode().hex().upper(),
    "hex with colons": lambda text: text.encode().hex(":"),
    "upper-case hex with spaces": lambda text: text.encode().hex(" ").upper(),
    "hex with dashes": lambda text: text.encode().hex("-"),
    "hex of UTF-16": lambda text: text.encode("utf-16-le").hex(),
    "bytes of Python": lambda text: repr(text.encode())[2:-1],
    "every byte escaped": lambda text: "".join(f"\\x{byte:02X}" for byte in text.encode()),
    "every byte escaped in JSON": lambda text: json.dumps("".join(f"\\x{byte:02x}" for byte in text.encode())),
    "URL": lambda text: quote(text, safe=""),
    "every byte as in a URL": lambda text: "".join(f"%{byte:02x}" for byte in text.encode("ascii", "ignore")),
    "JSON": json.dumps,
    "HTML": lambda text: html.escape(text).replace("+", "&#43;"),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 after one byte": lambda text: base64.b64encode(b":" + text.encode()).decode(),
    "base64 after two bytes": lambda text: base64.b64encode(b"a:" + text.encode()).decode(),
    "base64 for URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "base64 of UTF-16": lambda text: base64.b64encode(text.encode("utf-16-le")).decode(),
    "base32": lambda text: base64.b32encode(text.encode()).decode(),
    "base32 after three bytes": lambda text: base64.b32encode(b"abc" + text.encode()).decode(),
}


def leaked(shown: object, spelled: str) -> str:
    """The longest piece of a spelling in what came out, where it is long enough to tell something."""
    text = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False, default=str)
    pieces = (spelled[at : at + 6] for at in range(len(spelled) - 5))
    return next((piece for piece in pieces if piece in text), "")


def secret_catalog() -> Catalog:
    catalog = Catalog()
    catalog.add_secrets(Secret(CANARY))
    return catalog


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_a_spelling_comes_back_in_no_text_value_key_or_error(spelling: str) -> None:
    # The URL escapes of é are two bytes, which are not characters of the secret: without it here.
    value = CANARY if spelling != "every byte as in a URL" else CANARY[:-1]
    catalog = Catalog()
    catalog.add_secrets(Secret(value))
    spelled = SPELLINGS[spelling](value)

    @catalog.tool
    def text() -> str:
        """Give it."""
        return f"before {spelled} after"

    @catalog.tool
    def structured() -> dict[str, object]:
        """Give it."""
        return {"value": [spelled], f"key {spelled}": 1}

    @catalog.tool
    def failing() -> str:
        """Fail."""
        raise CallError("upstream_error", f"no {spelled}", details={spelled: spelled}, hint=spelled)

    view = catalog.view(ToolContext())
    for name in ("text", "structured", "failing"):
        result = await view.call(name)
        assert not leaked(repr(result), spelled.strip('"').strip("=")), (name, result)


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_a_spelling_that_is_split_over_blocks_does_not_come_back(spelling: str) -> None:
    value = CANARY if spelling != "every byte as in a URL" else CANARY[:-1]
    catalog = Catalog()
    catalog.add_secrets(Secret(value))
    spelled = SPELLINGS[spelling](value).strip("=")
    third = len(spelled) // 3

    @catalog.tool
    def split() -> ToolResult:
        """Give it in pieces."""
        first, second, last = spelled[:third], spelled[third : 2 * third], spelled[2 * third :]
        return ToolResult(
            content=(TextContent(f"a {first}"), ResourceContent("x:y", text=second), TextContent(f"{last} z"))
        )

    result = await catalog.view(ToolContext()).call("split")
    texts = [block.text or "" for block in result.content if isinstance(block, TextContent | ResourceContent)]
    assert (texts[0][:2], texts[2][-2:]) == ("a ", " z")
    assert not leaked("".join(texts), spelled.strip('"')), texts


async def test_blocks_without_a_secret_stay_as_they_are() -> None:
    catalog = secret_catalog()
    blocks = (TextContent("Zx9+tail/"), TextContent("hunter"), TextContent("2 and more"))

    @catalog.tool
    def honest() -> ToolResult:
        """Give parts of a secret that make none together."""
        return ToolResult(content=blocks)

    assert (await catalog.view(ToolContext()).call("honest")).content == blocks


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("size", [1, 3, 7])
def test_a_spelling_that_is_split_over_pieces_of_a_stream_does_not_come_out(spelling: str, size: int) -> None:
    value = CANARY if spelling != "every byte as in a URL" else CANARY[:-1]
    spelled = SPELLINGS[spelling](value)
    stream = TextStream(Redactor([Secret(value)]))
    text = f"before {spelled} after"
    out = "".join(stream.feed(text[at : at + size]) for at in range(0, len(text), size)) + stream.end()
    assert not leaked(out, spelled.strip('"').strip("=")), out
    assert out.startswith("before ")
    assert out.endswith(" after")


@pytest.mark.parametrize("word", ["live", "evil", "test", "production", "main", "8420", "localhost", "admin"])
def test_a_setting_that_is_a_word_blots_out_no_other_words(word: str) -> None:
    redactor = Redactor([Secret(word)])
    honest = "The evil twin of a tset, nimda in 61646d 0248 and 6d61; MFZXI base; \\x41 \\xab"
    assert redactor.text(honest) == honest.replace(word, "[redacted]")


async def test_neither_resources_nor_prompts_bring_a_spelling_back() -> None:
    catalog = secret_catalog()
    spelled = SPELLINGS["upper-case hex"](CANARY)

    @catalog.resource("note://x")
    def note() -> str:
        """A note."""
        return f"a {spelled} b"

    @catalog.prompt
    def ask() -> list[str]:
        """Ask."""
        return [f"a {spelled[:20]}", f"{spelled[20:]} b"]

    async with inside(http_app(catalog)) as client:
        read = await post(client, "resources/read", {"uri": "note://x"}, headers={"mcp-name": "note://x"})
        asked = await post(client, "prompts/get", {"name": "ask"})
    assert "a [redacted] b" in read.text
    assert "a [redacted]" in asked.text
    assert "[redacted] b" in asked.text
    assert not leaked(asked.text + read.text, spelled)
