"""Parsers and text recognition that the tests of `test_own_parsers` give to a workspace."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path
from typing import Any

from pegboard import CallError

ELSEWHERE = "not a function"


def read_contacts(content: bytes, name: str) -> dict[str, Any]:
    """Read lines of `name;number`; the mark decides how it goes wrong."""
    text = content.decode()
    if text.startswith("locked"):
        raise CallError("invalid_arguments", "the contacts are locked with a password")
    if text.startswith("broken"):
        raise ValueError(f"canary {text}")
    if text.startswith("slow"):
        time.sleep(600)
    if text.startswith("huge"):
        return {"text": str(bytearray(1 << 30))}
    if text.startswith("writes"):
        Path("written.txt").write_text("x")
    rows = [line.split(";") for line in text.splitlines()]
    table = {"name": "contacts", "columns": ["person", "number"], "rows": rows}
    return {
        "text": f"Contacts of {name}\n{text}",
        "title": "Contacts",
        "tables": [table],
        "metadata": {"team": "sales"},
    }


async def read_later(content: bytes, name: str) -> str:
    return f"{name} says {content.decode()}"


def read_pdf(content: bytes, name: str) -> str:
    return f"{len(content)} bytes of {name}"


def returns_nothing(content: bytes, name: str) -> Any:
    return None


def returns_a_wrong_key(content: bytes, name: str) -> Any:
    return {"text": "a", "txet": "b"}


def returns_uneven_rows(content: bytes, name: str) -> Any:
    return {"text": "a", "tables": [{"name": "t", "columns": ["x"], "rows": [[1, 2]]}]}


def read_picture(picture: bytes, media_type: str) -> str:
    """Tell the size of a picture, as text recognition would tell its words."""
    if media_type != "image/png":
        return ""
    width, height = struct.unpack(">II", picture[16:24])
    if os.environ.get("SECRET_OF_THE_SERVER"):
        return "it sees the variables of the server"
    return f"recognized a scan of {width} by {height}"
