"""Bucket source: the objects of an S3-compatible bucket as a document source."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Self

import msgspec
from msgspec import Struct

from pegboard.egress.destinations import Destinations
from pegboard.egress.http import GuardedClient
from pegboard.egress.responses import Response
from pegboard.model.bounds import MIB
from pegboard.model.document import SourceType
from pegboard.model.error import CallError, DefinitionError
from pegboard.workspace.file_reader import FileReader
from pegboard.workspace.parsing.signatures import SIGNATURE_BYTES
from pegboard.workspace.sources.document_source import (
    BadFile,
    Fetched,
    SourceFile,
    check_count,
    is_hidden,
    path_fault,
    path_of_stored,
)
from pegboard.workspace.sources.s3_signature import S3Keys, path_of_key, query_of, signed_headers
from pegboard.workspace.store.source_settings import SourceRoot
from pegboard.workspace.store.writing import StoredFile

BUCKET_PREFIX: Final = "s3://"
BUCKET_ANSWER_S = 60.0  # seconds for one answer
BUCKET_LIST_BYTES = 8 * MIB  # bytes of one page of a list
BUCKET_PAGES = 1_001  # pages of one list, of up to 1,000 objects each

_LISTING: Final = "pegboard.workspace.parsing.listings:parse_bucket"


class BucketPlace(Struct, frozen=True, kw_only=True):
    """The objects of a bucket below a prefix. Without an `endpoint` the bucket is at AWS."""

    bucket: str
    prefix: str = ""
    endpoint: str = ""

    @property
    def shown(self) -> str:
        """The address, for people."""
        at = f" at {self.endpoint}" if self.endpoint else ""
        return f"{BUCKET_PREFIX}{self.bucket}/{self.prefix}{at}"

    @classmethod
    def parse(cls, address: str, *, endpoint: str = "") -> BucketPlace:
        """Read `s3://BUCKET` or `s3://BUCKET/PREFIX`.

        Raises:
            DefinitionError: it is not such an address.
        """
        bucket, _, prefix = address.removeprefix(BUCKET_PREFIX).partition("/")
        if not bucket:
            raise DefinitionError(f"{address[:200]!r} has no bucket. Write s3://BUCKET/PREFIX.")
        return cls(bucket=bucket, prefix=prefix, endpoint=endpoint)

    def url(self, region: str) -> str:
        """Return the URL of the bucket; its name is in the path, as every service understands."""
        base = self.endpoint.rstrip("/") or f"https://s3.{region}.amazonaws.com"
        return f"{base}/{path_of_key(self.bucket)}"


class BucketSource:
    """The objects of a bucket below a prefix, with their etags: an object with the same etag is not fetched.

    Args:
        place: the bucket.
        keys: of the account; `None` reads a public bucket without a signature.
        destinations: the allowed hosts.
        clock: returns the time of a signature.
    """

    type: SourceType = "bucket"
    is_whole = True

    def __init__(
        self,
        place: BucketPlace,
        keys: S3Keys | None,
        destinations: Destinations,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._place, self._keys, self._clock = place, keys, clock
        self._url = place.url("us-east-1" if keys is None else keys.region)
        self._client = GuardedClient(destinations)
        self._reader = FileReader()
        self._listed: dict[str, SourceFile] | None = None
        self._skipped: list[BadFile] = []

    @property
    def origin(self) -> str:
        return self._place.shown

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._reader.__aexit__(kind, exc, trace)
        await self._client.aclose()

    async def place(self) -> SourceRoot | None:
        return SourceRoot(self.origin, 0, 0)

    def version(self) -> str:
        return ""

    async def files(self, on_bad: Callable[[BadFile], None]) -> AsyncIterator[Sequence[SourceFile]]:
        listed = [*(await self._all()).values()]
        for bad in self._skipped:
            on_bad(bad)
        for start in range(0, len(listed), 1_000):
            yield listed[start : start + 1_000]

    async def beginning(self, file: SourceFile) -> bytes:
        if not file.size_bytes:
            return b""
        response = await self._get(self._of(file), {"range": f"bytes=0-{SIGNATURE_BYTES - 1}"}, SIGNATURE_BYTES)
        return response.body

    async def fetch(self, file: SourceFile, *, max_bytes: int, known_etag: str) -> Fetched | None:
        if file.etag and file.etag == known_etag:
            return None
        response = await self._get(self._of(file), {}, max_bytes)
        # The object may have changed since the list was made.
        return Fetched(payload=response.body, etag=response.headers.get("etag", file.etag))

    async def without_file(self, documents: Sequence[StoredFile]) -> list[StoredFile]:
        listed = await self._all()
        return [each for each in documents if path_of_stored(each) not in listed]

    # ------------------------------------------------------------ requests

    async def _all(self) -> Mapping[str, SourceFile]:
        """Return all objects by path, relative to the last slash of the prefix."""
        if self._listed is None:
            listed: dict[str, SourceFile] = {}
            skipped: list[BadFile] = []
            token = ""
            for _ in range(BUCKET_PAGES):
                asked = {"list-type": "2", "prefix": self._place.prefix, "encoding-type": "url"}
                query = query_of(asked | ({"continuation-token": token} if token else {}))
                page = await self._get(f"{self._url}?{query}", {}, BUCKET_LIST_BYTES)
                token = await self._add(page.body, listed, skipped)
                check_count(len(listed), self.origin)
                if not token:
                    break
            else:
                # A list that was cut off would look as if the other objects had been deleted.
                raise CallError("result_too_large", f"The list of {self.origin} has more than {BUCKET_PAGES} pages.")
            self._listed, self._skipped = listed, skipped
        return self._listed

    async def _add(self, page: bytes, listed: dict[str, SourceFile], skipped: list[BadFile]) -> str:
        """Add the objects of a page of the list; return the token of the next page, empty for none."""
        parsed = await self._reader.listing(_LISTING, page)
        for key, size_bytes, etag, modified in parsed["objects"]:
            path = key[len(self._folder) :]
            if not path or key.endswith("/") or is_hidden(path):
                continue
            fault = path_fault(path) or _fault(path)
            if fault:
                skipped.append(BadFile(path=path.encode("utf-8", "replace").decode(), reason=fault))
                continue
            moment = msgspec.convert(modified, datetime, strict=False) if modified else None
            listed[path] = SourceFile(
                path=path,
                size_bytes=size_bytes,
                etag=etag,
                modified_s=None if moment is None else moment.timestamp(),
            )
        return parsed["next"]

    @property
    def _folder(self) -> str:
        """The part of the prefix that is not part of paths."""
        return self._place.prefix[: self._place.prefix.rfind("/") + 1]

    def _of(self, file: SourceFile) -> str:
        return f"{self._url}/{path_of_key(self._folder + file.path)}"

    async def _get(self, url: str, headers: Mapping[str, str], max_bytes: int) -> Response:
        signed = {} if self._keys is None else signed_headers(url, self._keys, now=self._clock())
        response = await self._client.request(
            "GET", url, headers={**signed, **headers}, timeout_s=BUCKET_ANSWER_S, max_response_bytes=max_bytes,
            max_redirects=0,
        )  # fmt: skip
        if response.status_code not in (200, 206):
            text = f"the service of {self._place.bucket!r} answered {response.status_code}"
            hints = {403: "; see that the keys may list and read it", 404: "; see that it exists", 301: _REGION}
            raise CallError("upstream_error", text + hints.get(response.status_code, ""))
        return response


_REGION: Final = "; see that its region is right"


def _fault(path: str) -> str:
    """Return why an object has no path; empty if it has one."""
    return "its name has empty or relative steps" if {"", ".", ".."} & {*path.split("/")} else ""
