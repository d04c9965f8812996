"""Synonyms: common words with the same meaning in tool names and descriptions."""

from __future__ import annotations

from pegboard.discovery.search.terms import stem

# Verbs, then abbreviations, then things. Deliberately small: each line must be true in any catalog.
_SAME: tuple[str, ...] = (
    "get fetch retrieve obtain read",
    "list show display enumerate",
    "search find lookup query",
    "create add make new insert",
    "delete remove erase destroy",
    "update edit modify change",
    "write save store",
    "run execute invoke launch start",
    "send post publish",
    "calculate compute",
    "convert transform",
    "check verify validate",
    "recommend suggest",
    "combine merge join",
    "copy duplicate clone",
    "directory folder",
    "picture image photo",
    "powerpoint presentation ppt pptx slide deck",
    "excel spreadsheet xlsx workbook",
    "word docx",
    "markdown md",
    "repository repo",
    "documentation docs",
    "configuration config settings",
    "authentication auth login",
    "administrator admin",
    "application app",
    "message msg",
    "email mail",
    "phone telephone mobile",
    "currency money forex",
    "bitcoin btc",
    "ethereum eth",
    "cryptocurrency crypto",
    "stock share equity",
    "company firm business organization",
    "movie film",
    "song track",
    "tv television",
    "price cost",
    "trend trending hot popular",
    "top best",
    "weather forecast climate",
    "address location",
    "coordinates latitude longitude",
    "near nearby close",
    "hotel accommodation lodging homestay",
    "flight airline plane",
    "train railway rail",
    "car vehicle automobile",
    "job vacancy",
    "user account member",
    "website site webpage",
    "quote quotation",
    "shorten short",
    "team club squad",
    "match game fixture",
    "ranking rank standings leaderboard",
    "statistics stats",
    "history historical",
    "language lang",
    "translate translation",
    "code program script",
    "shell terminal command",
)


def _table() -> dict[str, tuple[str, ...]]:
    table: dict[str, list[str]] = {}
    for line in _SAME:
        terms = [stem(word) for word in line.split()]
        for term in terms:
            table.setdefault(term, []).extend(other for other in terms if other != term)
    return {term: tuple(dict.fromkeys(others)) for term, others in table.items()}


SYNONYMS: dict[str, tuple[str, ...]] = _table()
