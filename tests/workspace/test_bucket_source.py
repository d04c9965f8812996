"""Buckets: the objects of an S3-compatible service come in, by signed requests, and only when they have changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pytest

from pegboard import Workspace
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.secret import Secret
from pegboard.workspace.sources import bucket_source
from pegboard.workspace.sources.bucket_source import BucketPlace
from pegboard.workspace.sources.s3_signature import S3Keys, signed_headers
from tests.workspace.library import ON_SQLITE_ALONE, Library
from tests.workspace.test_watching import ids
from tests.workspace.web_server import Answer, Asked, answering

KEYS = S3Keys(access_key="AKIAIOSFODNN7EXAMPLE", secret_key=Secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"))


@pytest.mark.parametrize(
    ("url", "signature"),
    [
        (
            "https://examplebucket.s3.amazonaws.com/?lifecycle",
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        (
            "https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J",
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ],
)
def test_requests_are_signed_as_in_the_examples_of_the_specification(url: str, signature: str) -> None:
    """Source: AWS, "Examples: Signature Calculations in AWS Signature Version 4"."""
    headers = signed_headers(url, KEYS, now=datetime(2013, 5, 24, tzinfo=UTC))
    assert headers["authorization"].endswith(f"Signature={signature}")


class Bucket:
    """A bucket of a service that checks signatures, and lists two objects on each page."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def answer(self, asked: Asked) -> Answer:
        expected = signed_headers(
            f"http://{asked.headers['host']}{asked.path}",
            KEYS,
            now=datetime.strptime(asked.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC),
        )
        if asked.headers["authorization"] != expected["authorization"]:
            return Answer(status=403)
        parts = urlsplit(asked.path)
        if parts.path == "/books":
            return Answer(self._page(parse_qs(parts.query)))
        key = unquote(parts.path.removeprefix("/books/"))
        if key not in self.objects:
            return Answer(status=404)
        body = self.objects[key]
        if "range" in asked.headers:
            return Answer(body[: int(asked.headers["range"].rpartition("-")[2]) + 1], status=206)
        return Answer(body, headers={"etag": etag_of(body)})

    def _page(self, asked: dict[str, list[str]]) -> bytes:
        prefix, start = asked["prefix"][0] if "prefix" in asked else "", int(asked.get("continuation-token", ["0"])[0])
        keys = [key for key in sorted(self.objects) if key.startswith(prefix)]
        rows = "".join(
            f"<Contents><Key>{quote(key)}</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>"
            f"<ETag>{etag_of(self.objects[key]).replace(chr(34), '&quot;')}</ETag><Size>{len(self.objects[key])}</Size>"
            "</Contents>"
            for key in keys[start : start + 2]
        )
        is_more = start + 2 < len(keys)
        token = f"<NextContinuationToken>{start + 2}</NextContinuationToken>" if is_more else ""
        namespace = "http://s3.amazonaws.com/doc/2006-03-01/"
        return (
            f'<?xml version="1.0"?><ListBucketResult xmlns="{namespace}"><IsTruncated>{str(is_more).lower()}'
            f"</IsTruncated>{token}{rows}</ListBucketResult>"
        ).encode()


def etag_of(body: bytes) -> str:
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'


class Served:
    def __init__(self, url: str, asked: list[Asked], bucket: Bucket) -> None:
        self.url, self.asked, self.objects = url, asked, bucket.objects

    def workspace(self, library: Library, *, secret_key: str | None = None) -> Workspace:
        env = {
            "AWS_ACCESS_KEY_ID": KEYS.access_key, "AWS_SECRET_ACCESS_KEY": secret_key or KEYS.secret_key.reveal(),
            "AWS_ENDPOINT_URL": self.url,
        }  # fmt: skip
        return Workspace(library.store, allow_private=True, env=env)

    def fetched(self) -> list[str]:
        paths = [unquote(urlsplit(each.path).path) for each in self.asked]
        self.asked.clear()
        return [path.removeprefix("/books/") for path in paths if path != "/books"]


@pytest.fixture
def served() -> Iterator[Served]:
    bucket = Bucket()
    bucket.objects.update(
        {f"hand book/ä{number}.txt": f"page {number}".encode() for number in range(5)} | {"other.txt": b"elsewhere"}
    )
    with answering(bucket.answer) as (url, asked):
        yield Served(url, asked, bucket)


async def test_objects_below_a_prefix_come_in_and_only_changed_ones_are_fetched(
    library: Library, served: Served
) -> None:
    workspace = served.workspace(library)
    report = await workspace.ingest("s3://books/hand book/", space="s1")
    assert (dict(report.counts), report.bad) == ({"added": 5}, [])
    before = await ids(library)
    assert set(before) == {f"ä{number}.txt" for number in range(5)}
    served.fetched()
    assert dict((await workspace.ingest("s3://books/hand book/", space="s1")).counts) == {"unchanged": 5}
    assert served.fetched() == []
    served.objects["hand book/ä1.txt"] = b"another page"
    served.objects["hand book/new.txt"] = b"new"
    del served.objects["hand book/ä0.txt"]
    served.objects["hand book/moved/ä4.txt"] = served.objects.pop("hand book/ä4.txt")
    report = await workspace.ingest("s3://books/hand book/", space="s1")
    assert dict(report.counts) == {"added": 1, "changed": 1, "renamed": 1, "unchanged": 2}
    assert report.removed == 1
    after = await ids(library)
    assert (after["moved/ä4.txt"], after["ä1.txt"]) == (before["ä4.txt"], before["ä1.txt"])
    assert [each["name"] for each in (await library.call("list_sources"))["items"]] == ["books"]


async def test_an_emptied_bucket_loses_nothing(library: Library, served: Served) -> None:
    workspace = served.workspace(library)
    await workspace.ingest("s3://books", space="s1")
    before = await ids(library)
    kept = dict(served.objects)
    served.objects.clear()
    with pytest.raises(CallError, match="all 6 documents of the source 'books' would be removed"):
        await workspace.ingest("s3://books", space="s1")
    served.objects.update(kept)
    assert dict((await workspace.ingest("s3://books", space="s1")).counts) == {"unchanged": 6}
    assert await ids(library) == before


@ON_SQLITE_ALONE
async def test_a_list_that_does_not_end_removes_nothing(
    library: Library, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = served.workspace(library)
    await workspace.ingest("s3://books", space="s1")
    before = await ids(library)
    monkeypatch.setattr(bucket_source, "BUCKET_PAGES", 2)
    with pytest.raises(CallError, match="has more than 2 pages"):
        await workspace.ingest("s3://books", space="s1", allow_shrink=True)
    assert await ids(library) == before


@ON_SQLITE_ALONE
async def test_what_a_service_refuses_is_said_and_removes_nothing(library: Library, served: Served) -> None:
    await served.workspace(library).ingest("s3://books", space="s1")
    before = await ids(library)
    with pytest.raises(CallError, match="answered 403; see that the keys may list and read it"):
        await served.workspace(library, secret_key="wrong").ingest("s3://books", space="s1")
    assert await ids(library) == before


@ON_SQLITE_ALONE
async def test_names_that_are_no_paths_are_reported_and_hidden_ones_skipped(library: Library, served: Served) -> None:
    served.objects.clear()
    served.objects.update({"a//b.txt": b"x", "../c.txt": b"x", ".git/d.txt": b"x", "folder/": b"", "e.txt": b"x",
                           "no\nname.txt": b"x", "picture": b"\x89PNG\r\n\x1a\n" + bytes(100)})  # fmt: skip
    report = await served.workspace(library).ingest("s3://books", space="s1")
    assert set(await ids(library)) == {"e.txt"}
    assert {bad.path: bad.reason for bad in report.bad} == {
        "a//b.txt": "its name has empty or relative steps",
        "no�name.txt": "its name has a character that cannot be shown, such as a line break; rename it",
    } | {bad.path: bad.reason for bad in report.bad if bad.path == "../c.txt"}
    # A file without an ending is recognized by its first bytes alone.
    assert [each.path for each in report.not_read] == ["picture"]
    assert all("range" in each.headers for each in served.asked if each.path.endswith("picture"))


@ON_SQLITE_ALONE
async def test_a_private_service_is_refused_unless_it_is_allowed(library: Library, served: Served) -> None:
    workspace = Workspace(library.store, env={"AWS_ENDPOINT_URL": served.url})
    with pytest.raises(CallError) as refused:
        await workspace.ingest("s3://books", space="s1")
    assert refused.value.error.kind == "blocked_destination"


def test_the_address_of_a_bucket_names_it() -> None:
    with pytest.raises(DefinitionError, match="has no bucket"):
        BucketPlace.parse("s3://")
    assert BucketPlace.parse("s3://books").url("eu-central-1") == "https://s3.eu-central-1.amazonaws.com/books"
