"""Sent form: the fields and files of a form that a browser sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl

from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.types import Receive

from pegboard.model.bounds import KIB
from pegboard.server.body_reader import BodyError, BodyReader
from pegboard.server.console.page_error import PageError
from pegboard.server.console.visit import SentFile

FORM_FIELDS = 2_000  # fields of one form
FORM_FILES = 200  # files of one form
_PIECE_BYTES = 256 * KIB  # parsed at once; other requests are answered in between


class SentForm(NamedTuple):
    """The fields of a form, with the last value of a repeated field, and its files by the name of their field."""

    fields: Mapping[str, str]
    files: Mapping[str, tuple[SentFile, ...]]


NO_FORM = SentForm({}, {})


async def read_form(
    body_reader: BodyReader, headers: dict[bytes, bytes], receive: Receive, *, limit_bytes: int | None = None,
    timeout_s: float | None = None,
) -> SentForm:  # fmt: skip
    """Return a form; by default within the limits of a message.

    Raises:
        PageError: it is not a form, or too long.
        ClientLeftError: the browser disconnected.
    """
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind not in (b"application/x-www-form-urlencoded", b"multipart/form-data"):
        raise PageError(415, "Not possible", "Send the fields of a form.")
    try:
        raw = await body_reader.read(headers, receive, limit_bytes=limit_bytes, timeout_s=timeout_s)
        if kind == b"multipart/form-data":
            return await _with_files(headers, raw)
        pairs = parse_qsl(raw.decode(), keep_blank_values=True, max_num_fields=FORM_FIELDS, errors="strict")
    except BodyError as error:
        raise PageError(error.status, "Not possible", error.text) from None
    except (ValueError, MultiPartException):
        raise PageError(400, "Not possible", "The form is not valid, or has too many fields.") from None
    return SentForm({name: _text(value) for name, value in pairs}, {})


async def _with_files(headers: Mapping[bytes, bytes], raw: bytes) -> SentForm:
    async def pieces() -> AsyncGenerator[bytes]:
        for start in range(0, len(raw), _PIECE_BYTES):
            yield raw[start : start + _PIECE_BYTES]
            await asyncio.sleep(0)

    heads = Headers(raw=[*headers.items()])
    parser = MultiPartParser(heads, pieces(), max_files=FORM_FILES, max_fields=FORM_FIELDS, max_part_size=len(raw))
    # The body is in memory already: files on the disk would only add a copy.
    parser.spool_max_size = len(raw) + 1
    form = await parser.parse()
    fields, files = dict[str, str](), dict[str, tuple[SentFile, ...]]()
    try:
        for name, value in form.multi_items():
            if not isinstance(value, UploadFile):
                fields[name] = _text(value)
            # Browsers send a file without a name for a field that was left empty.
            elif value.filename:
                sent = SentFile(value.filename, await value.read())
                files[name] = (*files.get(name, ()), sent)
    finally:
        await form.close()
    return SentForm(fields, files)


def _text(value: str) -> str:
    # Browsers send the line breaks of a text as CRLF.
    return value.replace("\r\n", "\n")
