"""Documents in the console: each person browses, searches, uploads and deletes what their own grants allow."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx2
import pytest

from pegboard import Catalog, Profile, Workspace
from pegboard.auth.rules import IdentityRules
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.record import replace
from pegboard.server.console.highlights import highlighted
from pegboard.server.console.shown_size import size
from tests.auth.parts import rule
from tests.server.console.browsing import ADDRESS, Browser, console, text_of
from tests.server.console.test_console_login import Office


class Library:
    """An office with documents: olga (an operator) has the space `staff`, paul `kitchen`, which he may change."""

    def __init__(self, folder: Path) -> None:
        self.office = office = Office(folder)
        self.workspace = Workspace(f"sqlite:{folder}/documents.db")
        office.catalog.use_documents(self.workspace.store)
        office.catalog.profile(Profile(name="reader", include=("core", "navigation", "search", "document")))
        office.catalog.identity = IdentityRules(
            key_store=office.keys.path,
            map=(
                rule(key="olga", user="olga", roles=("operator",), profiles=("reader",)),
                rule(key="paul", user="paul", profiles=("reader", "desk")),
                rule(key="nobody", user="nobody", profiles=("reader",)),
            ),
        )

    async def fill(self) -> Library:
        await self.workspace.grant("user:olga", "staff", "read")
        await self.workspace.grant("user:paul", "kitchen", "write")
        await self.workspace.upload(b"Salaries are secret.", space="staff", path="pay/salaries.md", source="papers")
        text = b"# Soup\n\nBoil the carrots for ten minutes. Add salt."
        await self.workspace.upload(text, space="kitchen", path="recipes/soup.md")
        await self.workspace.upload(b"name,price\ncarrot,2\nsalt,1\n", space="kitchen", path="prices.csv")
        return self


@pytest.fixture
async def library(tmp_path: Path) -> AsyncGenerator[Library]:
    library = await Library(tmp_path).fill()
    yield library
    library.workspace.close()


async def send(browser: Browser, *files: tuple[str, bytes], space: str = "kitchen", **fields: str) -> httpx2.Response:
    """Send the form of uploads as a browser does."""
    token = re.findall(r'name="form_token" value="([^"]+)', browser.page)[0]
    answer = await browser.client.post(
        f"/console/documents/upload?d_space={space}", data={"form_token": token, **fields},
        files=[("files", file) for file in files], headers={"origin": ADDRESS},
    )  # fmt: skip
    browser.page = answer.text or browser.page
    return answer


async def test_a_person_browses_and_reads_the_documents_of_their_spaces(library: Library) -> None:
    async with console(library.office.catalog) as browser:
        await browser.log_in(library.office.key["paul"])
        page = text_of((await browser.get("/documents?profile=reader")).text)
        assert "prices.csv uploads ready text/csv 27 bytes" in page
        assert "recipes/ soup.md uploads ready" in page
        [link] = re.findall(r'href="/console(/documents/doc_[^"]+)">soup.md', browser.page)
        one = text_of((await browser.get(link.replace("&amp;", "&"))).text)
        assert "Boil the carrots for ten minutes." in one
        for part in ("title Soup", "type text/markdown", "passages 1", "Delete soup.md"):
            assert part in one, part
        inside = text_of((await browser.get("/documents?profile=reader&source=uploads&folder=recipes")).text)
        assert ("soup.md" in inside, "prices.csv" in inside) == (True, False)


async def test_nobody_sees_a_document_of_a_space_that_is_not_theirs(library: Library) -> None:
    paths = await library.workspace.documents("staff")
    hidden = paths["items"][0]["document_id"]
    async with console(library.office.catalog) as browser:
        await browser.log_in(library.office.key["paul"])
        pages = (
            "/documents?profile=reader&d_space=staff", "/documents?profile=reader&q=secret+salaries",
            f"/documents/{hidden}?profile=reader", "/documents?profile=reader&d_space=staff&source=papers",
        )  # fmt: skip
        for path in pages:
            answer = await browser.get(path)
            assert "Salaries are" not in answer.text
            assert "salaries.md" not in answer.text
        assert (await browser.get(f"/documents/{hidden}?profile=reader")).status_code == 404
        await browser.get("/documents?profile=reader")
        assert (await browser.post(f"/documents/{hidden}/remove?profile=reader")).status_code == 404
        refused = await send(browser, ("evil.md", b"x"), space="staff")
        assert refused.status_code == 422
        await browser.get("/documents?profile=reader")
        await browser.post("/logout")
        # An operator who looks through paul's eyes sees their own documents.
        await browser.log_in(library.office.key["olga"])
        page = (await browser.get("/documents?user=paul&space=kitchen")).text
        assert ("salaries.md" in page, "soup.md" in page) == (True, False)
        assert (await browser.get(f"/documents/{hidden}")).status_code == 200
        assert "Delete salaries" not in browser.page
        await browser.post("/logout")
        await browser.log_in(library.office.key["nobody"])
        assert "nobody may read no space yet" in text_of((await browser.get("/documents")).text)
    assert len((await library.workspace.documents("staff"))["items"]) == 1


async def test_a_search_marks_the_words_in_the_passages_that_it_finds(library: Library) -> None:
    async with console(library.office.catalog) as browser:
        await browser.log_in(library.office.key["paul"])
        page = (await browser.get("/documents?profile=reader&q=boiling+a+carrot")).text
        assert "<mark>Boil</mark> the <mark>carrots</mark>" in page
        [link] = re.findall(r'href="/console(/documents/[^"]+)"><b>Soup', page)
        assert "<mark>carrots</mark>" in (await browser.get(link.replace("&amp;", "&"))).text
        assert "No passage fits" in (await browser.get("/documents?profile=reader&q=zeppelin")).text
        # Too long for the tool: its own words say so.
        assert (await browser.get("/documents?profile=reader&q=x&cursor=zz")).status_code == 200


async def test_files_are_stored_and_the_reasons_of_those_that_are_not_are_shown(library: Library) -> None:
    async with console(library.office.catalog) as browser:
        await browser.log_in(library.office.key["paul"])
        await browser.get("/documents?profile=reader")
        both = await send(
            browser, ("tea.md", b"# Tea\nHot water."), ("cake.txt", b"Flour"), source="notes", folder="/a/"
        )
        assert both.status_code == 303
        shown = text_of((await browser.client.get(both.headers["location"])).text)
        assert "Stored 2 documents." in shown
        assert "a/ tea.md notes ready" in shown
        await browser.get("/documents?profile=reader")
        mixed = await send(browser, ("bad.pdf", b"%PDF-1.7 broken"), ("good.md", b"Good"), ("../up.md", b"x"))
        page = text_of(mixed.text)
        assert mixed.status_code == 422
        assert "2 files not stored, 1 other stored" in page
        assert re.search(r"bad\.pdf : 'bad\.pdf' was not stored: ", page)
        assert "is not a valid document path" in page
        assert (await send(browser)).status_code == 422
        assert "Choose a file" in browser.page


async def test_a_document_is_deleted_by_a_form_and_only_by_those_who_may_write(library: Library) -> None:
    async with console(library.office.catalog) as browser:
        await browser.log_in(library.office.key["paul"])
        await browser.get("/documents?profile=reader")
        [link] = re.findall(r'href="/console(/documents/doc_[^"?]+)[^"]*">soup.md', browser.page)
        await browser.get(f"{link}?profile=reader")
        gone = await browser.post(f"{link}/remove?profile=reader")
        assert gone.headers["location"].endswith("done=removed")
        assert (await browser.get(f"{link}?profile=reader")).status_code == 404
        await library.workspace.grant("user:paul", "kitchen", "read")
        await browser.get("/documents?profile=reader")
        assert "Upload" not in browser.page
        [other] = re.findall(r'href="/console(/documents/doc_[^"?]+)[^"]*">prices.csv', browser.page)
        page = text_of((await browser.get(f"{other}?profile=reader")).text)
        assert "Delete" not in page
        assert "prices 2 rows name, price" in page
        assert (await browser.post(f"{other}/remove?profile=reader")).status_code in (403, 409)


async def test_uploads_need_a_login_a_token_and_the_form_of_a_browser(library: Library) -> None:
    async with console(library.office.catalog) as browser:
        file = [("files", ("a.md", b"x"))]
        away = await browser.client.post("/console/documents/upload", files=file, headers={"origin": ADDRESS})
        assert away.status_code == 403
        await browser.log_in(library.office.key["paul"])
        for heads in ({"origin": ADDRESS}, {"origin": "https://elsewhere.example"}):
            answer = await browser.client.post("/console/documents/upload", files=file, headers=heads)
            assert answer.status_code == 403
        heads = {"origin": ADDRESS, "content-type": "multipart/form-data"}
        bad = await browser.client.post("/console/documents/upload", content=b"--x\r\nno", headers=heads)
        assert bad.status_code == 400
    assert len((await library.workspace.documents("kitchen"))["items"]) == 2


async def test_a_file_that_is_too_long_is_refused(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = replace(DEFAULT_BOUNDS, upload_bytes=1_000)
    monkeypatch.setattr(type(library.office.catalog.registry), "bounds", bounds)
    async with console(library.office.catalog) as browser:
        await browser.log_in(library.office.key["paul"])
        await browser.get("/documents?profile=reader")
        answer = await send(browser, ("long.md", b"x" * 100_000))
        assert answer.status_code == 413


async def test_the_page_says_what_to_do_when_there_are_no_documents(tmp_path: Path, library: Library) -> None:
    async with console(Catalog("bare")) as browser:
        await browser.log_in()
        assert "workspace: store:" in text_of((await browser.get("/documents")).text)
        assert (await browser.get("/documents/none")).status_code == 404
    async with console(library.office.catalog) as browser:
        await browser.log_in(library.office.key["paul"])
        # The profile `desk` has no tools for documents.
        assert "has no group navigation" in text_of((await browser.get("/documents?profile=desk")).text)
        await library.workspace.grant("user:paul", "attic", "write")
        page = text_of((await browser.get("/documents?profile=reader&d_space=attic")).text)
        assert "No documents in attic Choose files above" in page


async def test_an_operator_has_no_documents_in_a_profile_of_others(library: Library) -> None:
    async with console(library.office.catalog) as browser:
        await browser.log_in(library.office.key["olga"])
        assert (await browser.get("/documents?profile=desk")).status_code == 200
        page = await browser.get("/documents/doc_1?profile=desk")
        assert (page.status_code, "documents belong to profiles" in text_of(page.text)) == (404, True)


def test_words_are_marked_in_any_form_and_the_rest_is_unchanged() -> None:
    text = "The leaves of 10 trees, and leaving."
    pieces = highlighted(text, "what leaves a tree")
    assert "".join(piece.text for piece in pieces) == text
    assert [piece.text for piece in pieces if piece.is_hit] == ["leaves", "trees", "leaving"]
    assert [piece.text for piece in highlighted("nothing here", "soup")] == ["nothing here"]


def test_sizes_have_three_digits_at_most() -> None:
    assert [size(count) for count in (0, 1, 999, 1_000, 1_234_567, 5_000_000_000, 10**13)] == [
        "0 bytes", "1 byte", "999 bytes", "1 kB", "1.23 MB", "5 GB", "1e+04 GB",
    ]  # fmt: skip
