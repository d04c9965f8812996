"""Manuals: a document set in four languages, made of the manual pages that Debian packages.

    python -m bench.manuals [--packages FOLDER]

Downloads `manpages`, `manpages-de`, `manpages-fr` and `manpages-ja` with `apt-get download` to `build/manuals` (or
takes the files of a folder) and writes `build/manuals/documents.jsonl`. Nothing of it is part of this repository;
without it the bench says so and goes on.

The bench asks two kinds of questions. Those of `bench/requests/manuals.jsonl` were written and judged by hand, before
anything was tuned: typing errors, compounds, codes, numbers, dates, headings, tables, and plain questions.
`apropos` asks for each page by its own line of summary, which is taken out of the text first: 100 for each language,
drawn by chance once.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import random
import re
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
HERE = Path(__file__).parent
DOCUMENTS = HERE.parent / "build" / "manuals" / "documents.jsonl"
QUESTIONS = HERE / "requests" / "manuals.jsonl"
LATER_QUESTIONS = HERE / "requests" / "manuals_later.jsonl"
PACKAGES = ("manpages", "manpages-de", "manpages-fr", "manpages-ja")
ABSENT = "The manuals are not here: `python -m bench.manuals` makes them of Debian packages. They are not measured."
PAGE_CHARS = 12_000
"""A longer page is cut, so that the bench takes a minute."""
ASKED_BY_LANGUAGE = 100

_PLACE = re.compile(r"\./usr/share/man/(?:(?P<language>[a-z]{2})/)?man[1-8]/(?P<name>[^/]+\.[14578])\.gz$")
_ESCAPES = (
    (re.compile(r"\\f(?:\[[^]]*\]|\(..|.)|\\[&|^,/%:]|\\s[+-]?\d+|\\\".*$"), ""),
    (re.compile(r"\\\((?:aq|cq|oq)|\\\[(?:aq|cq|oq)\]"), "'"),
    (re.compile(r"\\\((?:dq|lq|rq)|\\\[(?:dq|lq|rq)\]"), '"'),
    (re.compile(r"\\\(bu|\\\[bu\]"), "•"),
    (re.compile(r"\\-|\\\((?:en|em|mi)|\\\[(?:en|em|mi)\]"), "-"),
    (re.compile(r"\\[ ~0]"), " "),
    (re.compile(r"\\e|\\\(rs|\\\[rs\]"), r"\\"),
    (re.compile(r"\\\([a-zA-Z*+=<>-]{2}|\\\[[^]]*\]|\\[*n](?:\[[^]]*\]|\(..|.)"), ""),
)
_SPLIT = re.compile(r'"([^"]*)"|(\S+)')
_TWO_FONTS = frozenset(("BR", "RB", "IR", "RI", "BI", "IB"))
_TEXT = frozenset(("B", "I", "SM", "SB", "Nm", "Fl", "Ar", "Xr", "Nd", "Op", "Pa", "Ev", "Cm", "Em", "Sy", "IP", "It"))


def documents() -> list[Row] | None:
    """Return the pages as {id, language, title, summary, text}; `None` if they were not made."""
    if not DOCUMENTS.is_file():
        return None
    return [json.loads(line) for line in DOCUMENTS.read_text(encoding="utf-8").splitlines()]


def judged_questions(file: Path = QUESTIONS) -> list[Row]:
    """Return the questions that were judged by hand: {qid, kind, text, relevant}."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line]


def apropos(pages: Sequence[Row]) -> list[Row]:
    """Return a question for each of some pages: its summary."""
    draw = random.Random(35)
    counts: dict[tuple[str, str], int] = {}
    for page in pages:
        key = page["language"], page["summary"]
        counts[key] = counts.get(key, 0) + 1
    chosen: list[Row] = []
    for language in dict.fromkeys(page["language"] for page in pages):
        able = [
            page
            for page in pages
            if page["language"] == language and len(page["summary"]) > 8 and counts[language, page["summary"]] == 1
        ]
        chosen += draw.sample(able, min(ASKED_BY_LANGUAGE, len(able)))
    return [
        {"qid": f"a{n}", "kind": page["language"], "text": page["summary"], "relevant": [page["id"]]}
        for n, page in enumerate(chosen)
    ]


def plain_text(source: str) -> str:
    """Return a page of man or mdoc macros as Markdown-like text."""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(_lines(source))).strip()


def _lines(source: str) -> Iterator[str]:
    # Definitions of macros are not text.
    for raw in re.sub(r"^\.de .*?^\.\.$", "", source, flags=re.DOTALL | re.MULTILINE).splitlines():
        if raw.startswith((".", "'")):
            macro, _, rest = raw[1:].strip().partition(" ")
            words = [_plain(quoted or bare) for quoted, bare in _SPLIT.findall(rest)]
            if macro in ("SH", "Sh"):
                yield f"\n## {' '.join(words)}\n"
            elif macro in ("SS", "Ss"):
                yield f"\n### {' '.join(words)}\n"
            elif macro in _TWO_FONTS:
                yield "".join(words)
            elif macro in _TEXT and words:
                yield " ".join(words[:1] if macro == "IP" else words)
            elif macro in ("PP", "P", "LP", "TP", "Pp", "sp"):
                yield ""
        else:
            yield _plain(raw)


def _plain(text: str) -> str:
    for pattern, put in _ESCAPES:
        text = pattern.sub(put, text)
    return text


def files_of(package: Path, language: str) -> Iterator[tuple[str, bytes]]:
    """Yield the id and the packed content of each page of a package; links to other pages are left out."""
    unpacked = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(package)], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(unpacked)) as archive:
        for member in archive:
            place = _PLACE.match(member.name)
            file = archive.extractfile(member) if place and member.isfile() else None
            if place is None or file is None or (place["language"] or "en") != language:
                continue
            yield f"{language}/{place['name']}", file.read()


def pages_of(package: Path, language: str) -> Iterator[Row]:
    """Yield the pages of a package."""
    for id_, content in files_of(package, language):
        text = plain_text(gzip.decompress(content).decode("utf-8", "replace"))
        if len(text) >= 400:
            yield _page(id_, language, text)


def _page(id_: str, language: str, text: str) -> Row:
    first = re.match(r"## [^\n]*\n+(?P<body>.*?)(?=\n\n?#|\Z)", text, re.DOTALL)
    body = " ".join(first["body"].split()) if first else ""
    _, _, summary = body.partition(" - ")
    rest = text[first.end() :].strip() if first and summary else text
    name = id_.rpartition("/")[2].rpartition(".")[0]
    return {"id": id_, "language": language, "title": name, "summary": summary.strip(), "text": rest[:PAGE_CHARS]}


def make(folder: Path) -> int:
    """Write the documents of the packages in a folder; return their number."""
    pages: list[Row] = []
    for package in PACKAGES:
        [file, *_] = sorted(folder.glob(f"{package}_*.deb"))
        pages += pages_of(file, package.partition("-")[2] or "en")
    DOCUMENTS.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(page, ensure_ascii=False) for page in sorted(pages, key=lambda page: page["id"]))
    DOCUMENTS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return len(pages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, help="a folder with the .deb files; downloaded without it")
    options = parser.parse_args()
    folder: Path = options.packages or DOCUMENTS.parent
    if options.packages is None and not all(any(folder.glob(f"{package}_*.deb")) for package in PACKAGES):
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", *PACKAGES], cwd=folder, check=True)
    print(f"{make(folder)} pages in {DOCUMENTS}")


if __name__ == "__main__":
    main()
