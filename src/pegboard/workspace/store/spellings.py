"""Spellings: finds the terms of a scope that look like a word, or that a compound consists of.

`spellings` lists each term of a space once, and by each run of three letters in it. So mistyped words and compounds are
found without a dictionary, and only among terms that the scope's own passages have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from pegboard.workspace.store.connection import Connection
from pegboard.workspace.store.readable_spaces import ReadableSpaces

SPELLING_CHARS = (4, 32)  # letters of the shortest and the longest term that is found by its spelling
SPELLINGS_COMPARED = 40  # terms with the most common runs of letters, whose letters are compared
NEAR_SPELLINGS = 4  # terms that stand for one mistyped word
COMPOUNDS_OF_WORD = 24  # compounds that one word of a question finds
SLIP_CHARS = (3, 24)  # length of a word whose typing slips are undone, in letters

_RUN: Final = 3
_BEGIN, _END = "^", "$"
_TERM: Final = ""  # the row that lists a term itself
_ONE_EDIT_CHARS: Final = 4  # one mistake is likely in words of at least so many letters
_TWO_EDITS_CHARS: Final = 8  # and two
_THREE_EDITS_CHARS: Final = 14  # and three: a mistake in an ending also keeps the stemmer from removing it
_DOUBLED_CHARS: Final = 5  # letters of a word that may have an extra letter or lack one of a double letter
_COMPOUNDED_CHARS: Final = 3  # letters of the shortest other part of a compound
_AT_ONCE: Final = 400


class NearTerm(NamedTuple):
    """A term that resembles a word, with the number of mistakes between them."""

    term: str
    mistakes: int


def has_spelling(term: str) -> bool:
    """Return whether a term is found by its spelling. Codes are not: one digit makes another code."""
    return SPELLING_CHARS[0] <= len(term) <= SPELLING_CHARS[1] and term.isalpha()


def put_spellings(db: Connection, space_n: int, terms: Iterable[str]) -> None:
    """List the terms of a space that are not listed yet."""
    able = sorted(filter(has_spelling, set(terms)))
    for start in range(0, len(able), _AT_ONCE):
        some = able[start : start + _AT_ONCE]
        listed = ",".join([f"({space_n:d}, '{_TERM}', ?)"] * len(some))
        new: list[Any] = db.execute(
            f"insert into spellings (space_n, letters, term) values {listed} on conflict do nothing returning term",  # noqa: S608 - question marks
            some,
        ).fetchall()
        rows = [(space_n, letters, term) for (term,) in new for letters in letters_of(term)]
        rows.sort(key=lambda row: row[1:])
        db.insert_rows("spellings", ("space_n", "letters", "term"), rows)


def remove_spellings(db: Connection, space_n: int, terms: Iterable[str]) -> None:
    """Remove the terms of a space that no passage contains any longer."""
    able = sorted(filter(has_spelling, set(terms)))
    for start in range(0, len(able), _AT_ONCE):
        some = able[start : start + _AT_ONCE]
        gone: list[Any] = db.execute(
            f"select term from spellings where space_n = {space_n:d} and letters = '{_TERM}' "  # noqa: S608 - question marks
            f"and term in ({','.join('?' * len(some))}) and not exists (select 1 from postings "
            "where postings.space_n = spellings.space_n and postings.term = spellings.term)",
            some,
        ).fetchall()
        for (term,) in gone:
            letters = [_TERM, *letters_of(term)]
            db.execute(
                f"delete from spellings where space_n = {space_n:d} and letters in ({','.join('?' * len(letters))}) "  # noqa: S608 - question marks
                "and term = ?",
                [*letters, term],
            )


def near_terms(db: Connection, within: ReadableSpaces, stem: str) -> list[NearTerm]:
    """Return the terms of a scope with the fewest mistakes between them and a stem, nearest first."""
    most = 1 + (len(stem) >= _TWO_EDITS_CHARS) + (len(stem) >= _THREE_EDITS_CHARS)
    if not has_spelling(stem) or len(stem) < _ONE_EDIT_CHARS:
        return []
    found: list[NearTerm] = []
    # A mistake changes at most three runs of letters; two neighbours swapped change four.
    least = max(1, len(stem) - (_RUN + 1) * most)
    for term in _with_letters(db, within, letters_of(stem), least=least, limit=SPELLINGS_COMPARED):
        mistakes = mistakes_between(stem, term, at_most=most)
        if 0 < mistakes <= most:
            found.append(NearTerm(term, mistakes))
    # The first letter is seldom wrong.
    found.sort(key=lambda near: (near.mistakes, near.term[0] != stem[0], near.term))
    return [near for near in found if near.mistakes == found[0].mistakes][:NEAR_SPELLINGS]


def slips_of(word: str) -> list[str]:
    """Return the words that a typing slip may have turned into this one, in no particular order.

    Undone slips are swapped neighbours, an extra letter, and a missing double letter. `near_terms` does not find
    them in short words, which share few runs of letters, nor in endings, which stemming then leaves in place.
    """
    if not SLIP_CHARS[0] <= len(word) <= SLIP_CHARS[1] or not word.isalpha():
        return []
    slips = [word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in range(len(word) - 1)]
    if len(word) >= _DOUBLED_CHARS:
        slips += [word[:i] + word[i + 1 :] for i in range(1, len(word))]
        slips += [word[:i] + word[i] + word[i:] for i in range(1, len(word))]
    return [slip for slip in dict.fromkeys(slips) if slip != word]


def compounds_of(db: Connection, within: ReadableSpaces, stem: str) -> list[str]:
    """Return terms of a scope that begin or end with a stem and have another part, the shortest first."""
    if not has_spelling(stem):
        return []
    inner = [letters for letters in letters_of(stem) if _BEGIN not in letters and _END not in letters]
    terms = _with_letters(db, within, inner, least=len(inner), limit=10 * COMPOUNDS_OF_WORD)
    # One or two letters more make another word: `Klang` has nothing to do with `lang`.
    shortest = len(stem) + _COMPOUNDED_CHARS
    able = (term for term in terms if len(term) >= shortest and (term.startswith(stem) or term.endswith(stem)))
    return sorted(able, key=lambda term: (len(term), term))[:COMPOUNDS_OF_WORD]


def letters_of(term: str) -> list[str]:
    """Return the different runs of three letters in a term, with marks at both ends."""
    marked = f"{_BEGIN}{term}{_END}"
    return list(dict.fromkeys(marked[i : i + _RUN] for i in range(len(marked) - _RUN + 1)))


def _with_letters(
    db: Connection, within: ReadableSpaces, letters: Sequence[str], *, least: int, limit: int
) -> Iterator[str]:
    if not letters:
        return
    rows = db.execute(
        f"select term from spellings where {within.of('spellings')} and letters in ({','.join('?' * len(letters))}) "  # noqa: S608 - numbers of ours
        f"group by term having count(distinct letters) >= {least:d} "
        f"order by count(distinct letters) desc, length(term), term limit {limit:d}",
        letters,
    )
    yield from (str(term) for (term,) in rows)


def mistakes_between(one: str, other: str, *, at_most: int) -> int:
    """Return how many letters are wrong, missing, added or swapped with a neighbour; more than `at_most` if many.

    Source: Damerau, 1964, in the form that edits no part twice.
    """
    if abs(len(one) - len(other)) > at_most:
        return at_most + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        earlier, before, row = before, row, [i]
        for j, compared in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != compared))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == compared:
                cost = min(cost, earlier[j - 2] + 1)
            row.append(cost)
        if min(row) > at_most:
            return at_most + 1
    return row[-1]
