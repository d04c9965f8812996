"""Decoding: undo the content coding of a body in small, counted pieces."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol

# Only what we can unpack with bounded memory is asked for; a server that sends another coding breaks the protocol.
ACCEPT_ENCODING = "gzip, deflate"
_PIECE_BYTES = 256 * 1024


class Decoder(Protocol):
    """Turns raw chunks into pieces of the body, each at most 256 KiB."""

    def decode(self, raw: bytes) -> Iterator[bytes]:
        """Yield what `raw` unpacks to.

        Raises:
            zlib.error: the bytes are not what the header promised.
        """
        ...


class Plain:
    """A body without content coding."""

    def decode(self, raw: bytes) -> Iterator[bytes]:
        """Yield the chunk as it is."""
        yield raw


class Inflate:
    """A gzip or deflate body. Bytes behind its end are ignored, as browsers do."""

    def __init__(self, *, gzip: bool) -> None:
        self._gzip = gzip
        self._started = False
        self._unpack = zlib.decompressobj(zlib.MAX_WBITS | 16 if gzip else zlib.MAX_WBITS)

    def decode(self, raw: bytes) -> Iterator[bytes]:
        """Yield the unpacked pieces; the rest of the chunk waits inside until the next one is asked for."""
        try:
            piece = self._unpack.decompress(raw, _PIECE_BYTES)
        except zlib.error:
            if self._gzip or self._started:
                raise
            # Many servers send "deflate" without its zlib header.
            self._unpack = zlib.decompressobj(-zlib.MAX_WBITS)
            piece = self._unpack.decompress(raw, _PIECE_BYTES)
        self._started = True
        while piece:
            yield piece
            piece = self._unpack.decompress(self._unpack.unconsumed_tail, _PIECE_BYTES)


def decoder_for(content_encoding: str) -> Decoder | None:
    """Return the decoder for a `Content-Encoding` header, or None for codings that we never asked for.

    Two codings on top of each other count as such: no honest server needs them.
    """
    codings = [
        coding for part in content_encoding.split(",") if (coding := part.strip().lower()) not in ("", "identity")
    ]
    if not codings:
        return Plain()
    if len(codings) > 1:
        return None
    match codings[0]:
        case "gzip" | "x-gzip":
            return Inflate(gzip=True)
        case "deflate":
            return Inflate(gzip=False)
        case _:
            return None
