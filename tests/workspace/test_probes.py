"""Sixty probes of real manual pages in four languages: a right page is among the first five hits, on both stores.

`python -m bench.manuals` downloads the pages. The fifty questions of `bench/requests` were
judged before anything was tuned, and so were the ten on tables here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import manuals
from pegboard import Workspace
from tests.workspace.library import Library, in_space

pytestmark = pytest.mark.soak

PACKAGES = manuals.DOCUMENTS.parent
TABLES = {
    "SIGSTKFLT stack fault on coprocessor": "signal.7",
    "Latin-2 character set for Polish, Romanian and Slovene": "iso_8859-2.7",
    "LATIN SMALL LETTER A WITH DIAERESIS": "iso_8859-1.7",
    "octal 177 7F DEL": "ascii.7",
    "operator precedence right to left sizeof": "operator.7",
    "kibi mebi gibi binary prefixes": "units.7",
    "CAP_SYS_PTRACE process_vm_writev": "capabilities.7",
    "AF_X25 protocol family": "address_families.7",
    "async-signal-safe functions aio_error accept": "signal-safety.7",
    "/srv site-specific data served by this system": "hier.7",
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manual pages as packed files, a folder for each language."""
    if not all(any(PACKAGES.glob(f"{package}_*.deb")) for package in manuals.PACKAGES):
        pytest.skip(f"no packages in {PACKAGES}: `python -m bench.manuals` downloads them")
    folder = tmp_path_factory.mktemp("man")
    for package in manuals.PACKAGES:
        [file, *_] = sorted(PACKAGES.glob(f"{package}_*.deb"))
        for id_, content in manuals.files_of(file, package.partition("-")[2] or "en"):
            path = folder / f"{id_}.gz"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
    return folder


def probes() -> Iterator[tuple[str, str, set[str]]]:
    for each in manuals.judged_questions():
        if each["kind"] != "plain":
            yield each["kind"], each["text"], {f"{relevant}.gz" for relevant in each["relevant"]}
    for text, page in TABLES.items():
        yield "table", text, {f"{language}/{page}.gz" for language in ("en", "de", "fr", "ja")}


async def paths(library: Library, hits: list[Any]) -> list[str]:
    ids = list(dict.fromkeys(hit["document_id"] for hit in hits))[:5]
    infos = [await library.call("document_info", in_space("man"), document_id=each) for each in ids]
    return [info["path"].strip("/") for info in infos]


async def test_of_sixty_probes_at_least_fifty_three_are_found_on_either_store(library: Library, pages: Path) -> None:
    report = await Workspace(library.store).ingest(pages, space="man", source="man")
    assert not report.bad
    missed: list[tuple[str, str, list[str]]] = []
    asked = [*probes()]
    for kind, text, right in asked:
        answer = await library.call("search_documents", in_space("man"), query=text, limit=50)
        found = await paths(library, answer["hits"])
        if right.isdisjoint(found):
            missed.append((kind, text, found))
    print(f"{len(asked) - len(missed)} of {len(asked)} of {report.seen} pages; missed: {missed}")
    assert len(asked) == 60
    # The goal is 5. All pages in full are harder than the shortened ones of the bench.
    assert len(missed) <= 7, missed
