"""Query: parses a search text into groups of interchangeable terms, and the clauses that contain them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from msgspec import Struct

from pegboard.discovery.limits import SEARCH_QUERY_CHARS
from pegboard.discovery.search.postings import Postings, spellings_near, terms_alike
from pegboard.discovery.search.synonyms import SYNONYMS
from pegboard.discovery.search.terms import ENGLISH, Languages, languages_of, stem, stems, word_parts, words_of
from pegboard.discovery.search.translations import english_of

SEARCH_COMPOUND_CHARS = 64  # characters of the longest word that is tried as a compound of two
SEARCH_QUERY_WORDS = 64  # different words of one query
SEARCH_COMPARED_WORDS = 16  # unknown words of one query that are tried as compounds and misspellings
SEARCH_SPELLINGS = 3  # similar spellings tried for one unknown word
SEARCH_GUESSED_CHARS = 16  # characters of the longest word that is tried with one letter changed

# Words of asking, which say nothing about a tool. Inflected forms, not stems: "who is currently planning" asks for
# neither the current weather nor a plan.
_ASKING = frozenset(
    (
        "please could would can want wants wanted wish need needs needed require requires required help helps helping"
        " assist provide provides providing give gives giving tell like likes also additionally furthermore moreover"
        " finally thank thanks im ill id let lets us use uses used using able sure interested planning currently tool"
        " tools"
    ).split()
)
_LABEL = re.compile(
    r"^[^\S\n]*(?:server|namespace|toolset|agent|app|tool|function|capability|action)\s*[:=]\s*",
    re.IGNORECASE | re.MULTILINE,
)
_CLAUSE_END = re.compile(r"[.?!;](?=\s|$)|[。？！；]|\n|\s[+/]\s|,\s+and\s|\band also\b|\band then\b")
# Values for a tool rather than its description: addresses, paths, quotations.
_ARGUMENT = re.compile(
    r"https?://\S+|(?<![\w.+-])[\w.+-]+@[\w-]+\.\w[\w.-]*|(?<![\w:/])~?(?:/[\w.@%+-]+)+/?|[\"“'‘][^\"”'’\n]{1,60}[\"”'’](?!\w)"
)
_SPLIT_SHARE = 0.5
_SPELLING_SHARE = 0.8
_LEAST_SPELLING = 0.5
_GUESSED_FIRST = 6  # words of a long task that corrections are tried for, since that takes time
_LEAST_GUESSED_CHARS = 4  # characters of the shortest word that is corrected
# characters of the shortest word that is corrected by one letter, since too many short words are that close
_LEAST_SLIPPED = 6


class TermGroup(Struct, frozen=True, kw_only=True):
    """One word of the request and the terms of visible tools that match it.

    `exact` are the word and its other spellings, each with its share of a full match; `similar` are synonyms. A group
    `is_known` if a visible tool has the word itself, the word with one typing slip, both its halves, or a synonym. A
    merely similar spelling or one half does not count.
    """

    exact: tuple[tuple[str, float], ...]
    similar: tuple[str, ...]
    is_known: bool
    is_argument: bool


class ParsedQuery(Struct, frozen=True, kw_only=True):
    """A parsed search text: its groups and, for each clause, the positions of its groups."""

    groups: tuple[TermGroup, ...]
    clauses: tuple[tuple[int, ...], ...]


class Vocabulary(Struct, frozen=True, kw_only=True):
    """The terms for parsing a request.

    `known` tells whether a visible tool has a term; unknown terms are never used. `together` tells whether a visible
    tool has both terms. `languages` are those of the visible tools' descriptions.
    """

    postings: Postings
    known: Callable[[str], bool]
    together: Callable[[str, str], bool]
    languages: Languages


def parse_query(text: str, vocabulary: Vocabulary) -> ParsedQuery:
    """Parse a search text; only its first 4,000 characters and 64 different words are used."""
    text = text[:SEARCH_QUERY_CHARS]
    request = _read(text, vocabulary, silent=_ASKING)
    if request.groups:
        return request
    # "help" alone asks for the tool of that name.
    return _read(text, vocabulary, silent=frozenset(word for word in _ASKING if not vocabulary.known(stem(word))))


def telling_terms(text: str) -> frozenset[str]:
    """Return the stems of the meaningful words of a search: no arguments, names, numbers or words of asking."""
    text = _LABEL.sub(" ", text[:SEARCH_QUERY_CHARS])
    arguments = {word for match in _ARGUMENT.finditer(text) for word in words_of(match.group())}
    words: list[str] = []
    for clause in _CLAUSE_END.split(text):
        for n, word in enumerate(words_of(clause)):
            if word not in arguments and not (n > 0 and word.istitle()) and not any(map(str.isdigit, word)):
                words.append(word)
    spoken = languages_of(words)
    parts = (part for word in words for part in word_parts(word, spoken) if part not in _ASKING)
    return frozenset(islice(dict.fromkeys(stems(part, spoken)[0] for part in parts), SEARCH_QUERY_WORDS))


def _read(text: str, vocabulary: Vocabulary, *, silent: frozenset[str]) -> ParsedQuery:
    spoken = languages_of(words_of(text), among=vocabulary.languages)
    arguments = {word for match in _ARGUMENT.finditer(text) for word in words_of(match.group())}
    places: dict[str, int] = {}
    groups: list[TermGroup] = []
    clauses: list[tuple[int, ...]] = []
    unknown = 0
    for clause in _CLAUSE_END.split(_LABEL.sub(" ", text)):
        words = words_of(clause)
        members: dict[int, None] = {}
        for n, (word, following) in enumerate(zip(words, (*words[1:], ""), strict=False)):
            # A capitalised word inside a sentence is a proper name; all capitals (PDF, SQL) are not.
            is_argument = word in arguments or (n > 0 and word.istitle())
            for part in _asked_parts(word, spoken, vocabulary, silent):
                if stem(part) not in places and len(groups) < SEARCH_QUERY_WORDS:
                    places[stem(part)] = len(groups)
                    own = _own_terms(part, following, spoken, vocabulary)
                    unknown += not own
                    groups.append(
                        _group(
                            part,
                            own,
                            vocabulary,
                            is_argument=is_argument or part.isdigit(),
                            may_compare=unknown <= SEARCH_COMPARED_WORDS,
                            may_guess=len(groups) < _GUESSED_FIRST,
                        )
                    )
                if stem(part) in places:
                    members[places[stem(part)]] = None
        if members:
            clauses.append(tuple(members))
    return ParsedQuery(groups=tuple(groups), clauses=tuple(clauses))


def _asked_parts(word: str, spoken: Languages, vocabulary: Vocabulary, silent: frozenset[str]) -> Iterator[str]:
    """Yield the meaningful parts of a word, and the whole word if a tool has it."""
    parts = word_parts(word, spoken)
    for part in parts:
        # In scripts without spaces the parts are pairs of characters, without a whole word after them.
        is_whole = len(parts) > 1 and part is parts[-1] and (len(part) > 2 or part.isascii())
        if part not in silent and not (is_whole and not vocabulary.known(stem(part))):
            yield part


def _own_terms(part: str, following: str, spoken: Languages, vocabulary: Vocabulary) -> list[str]:
    """Return the terms of visible tools that match a word, alone or joined with the next word."""
    known = vocabulary.known
    own = [term for term in stems(part, (ENGLISH, *spoken)) if known(term)]
    if not own:
        own = [term for term in stems(part, vocabulary.languages) if known(term)]
    joined = stem(part + following.lower())
    if following and known(joined):  # "file system" finds filesystem
        own.append(joined)
    return own


def _group(
    part: str, own: Sequence[str], vocabulary: Vocabulary, *, is_argument: bool, may_compare: bool, may_guess: bool
) -> TermGroup:
    known = vocabulary.known
    similar = tuple(other for other in SYNONYMS.get(stem(part), ()) if other not in own and known(other))
    exact, is_known = dict.fromkeys(own, 1.0), bool(own or similar)
    if not own and may_compare:
        exact, is_known = _spelled(part, similar, vocabulary)
    if not exact and not similar and not is_argument and may_guess:
        exact = _guesses(part, stem(part), vocabulary)
    return TermGroup(exact=tuple(exact.items()), similar=similar, is_known=is_known, is_argument=is_argument)


def _spelled(part: str, similar: Sequence[str], vocabulary: Vocabulary) -> tuple[dict[str, float], bool]:
    """Return the halves and similar spellings of an unknown word, and whether it is known by them."""
    known, term = vocabulary.known, stem(part)
    if halves := _split_compound(part, known):
        return dict.fromkeys(halves, _SPLIT_SHARE), vocabulary.together(*halves)
    if similar:
        return {}, True
    if len(term) <= 3:  # shorter words have no similar spellings
        return {}, False
    near = spellings_near(term, vocabulary.postings, known=known, least=_LEAST_SPELLING, count=SEARCH_SPELLINGS)
    exact = {other: _SPELLING_SHARE * share for other, share in near}
    return exact, len(part) >= _LEAST_SLIPPED and any(_is_one_slip(term, other) for other in exact)


def _guesses(part: str, term: str, vocabulary: Vocabulary) -> dict[str, float]:
    """Return the translations or typing corrections of a word without any similar spelling."""
    known = vocabulary.known
    if meant := [other for other in english_of(part) if known(other)]:
        return dict.fromkeys(meant, 1.0)
    slips = {other for form in {term, part} for other in _slips_of(form, vocabulary.postings) if known(other)}
    # Sorted, since sums of floats depend on the order.
    return dict.fromkeys(sorted(slips), _SPELLING_SHARE)


def _slips_of(word: str, postings: Postings) -> list[str]:
    """Return the terms that differ from a word by one letter missing, extra or replaced, or by two swapped."""
    if not _LEAST_GUESSED_CHARS <= len(word) <= SEARCH_GUESSED_CHARS or not word.isalpha():
        return []
    return [other for other in terms_alike(word, postings) if other.isalpha() and _is_one_slip(word, other)]


def _is_one_slip(word: str, other: str) -> bool:
    """Tell whether one letter extra, missing or replaced, or two swapped, turn one word into the other."""
    start = 0
    for letter, meant in zip(word, other, strict=False):
        if letter != meant:
            break
        start += 1
    rest, due = word[start:], other[start:]
    is_exchanged = rest[:2] == due[1::-1] and rest[2:] == due[2:]
    return rest[1:] == due[1:] or rest == due[1:] or rest[1:] == due or is_exchanged


def _split_compound(word: str, known: Callable[[str], bool]) -> tuple[str, str] | tuple[()]:
    """Return the two known terms of a compound ("filesystem" finds file_system), or nothing."""
    for cut in range(3, len(word) - 2) if len(word) <= SEARCH_COMPOUND_CHARS else ():
        if known(first := stem(word[:cut])) and known(second := stem(word[cut:])):
            return first, second
    return ()
