"""Query: what a search text asks for, as groups of interchangeable terms and the clauses they stand in."""

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

SEARCH_COMPOUND_CHARS = 64  # of a word that is looked at as two that are written together
SEARCH_QUERY_WORDS = 64  # different ones of one query
SEARCH_COMPARED_WORDS = 16  # of one query that no tool has, looked at for their halves and for spellings near them
SEARCH_SPELLINGS = 3  # near one unknown word
SEARCH_GUESSED_CHARS = 16  # of a word that is looked for with one letter changed

# Words of asking rather than of what is asked for: they say nothing about a tool. Forms, not stems: who is currently
# planning something asks for neither the current weather nor a plan.
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
# What a request hands to a tool rather than asks of it: addresses, paths, quotations.
_ARGUMENT = re.compile(
    r"https?://\S+|(?<![\w.+-])[\w.+-]+@[\w-]+\.\w[\w.-]*|(?<![\w:/])~?(?:/[\w.@%+-]+)+/?|[\"“'‘][^\"”'’\n]{1,60}[\"”'’](?!\w)"
)
_SPLIT_SHARE = 0.5
_SPELLING_SHARE = 0.8
_LEAST_SPELLING = 0.5
_GUESSED_FIRST = 6  # of a whole task the words after these are not guessed at, which takes time
_LEAST_GUESSED_CHARS = 4  # of shorter words nobody knows what was meant
_LEAST_SLIPPED = 6  # among shorter words too many are one letter apart


class TermGroup(Struct, frozen=True, kw_only=True):
    """One word of the request and the terms of visible tools that would satisfy it.

    `exact` are the word itself and its other spellings, each with the share of a full match that it is worth; `similar`
    mean about the same. A group `is_known` when a visible tool has the word itself, one slip of the keyboard away from
    it, both its halves or one that means the same; not merely one spelled nearly so or one of its halves.
    """

    exact: tuple[tuple[str, float], ...]
    similar: tuple[str, ...]
    is_known: bool
    is_argument: bool


class ParsedQuery(Struct, frozen=True, kw_only=True):
    """A search text, read: its groups and, for each clause, the positions of its groups."""

    groups: tuple[TermGroup, ...]
    clauses: tuple[tuple[int, ...], ...]


class Vocabulary(Struct, frozen=True, kw_only=True):
    """The terms that a request may be read against.

    `known` says whether a visible tool has a term: nothing is expanded to a term for which it says no; `together`
    whether one has both. `languages` are those that the visible tools are described in.
    """

    postings: Postings
    known: Callable[[str], bool]
    together: Callable[[str, str], bool]
    languages: Languages


def parse_query(text: str, vocabulary: Vocabulary) -> ParsedQuery:
    """Read a search text; what follows its first 4,000 characters and its first 64 different words is ignored."""
    text = text[:SEARCH_QUERY_CHARS]
    request = _read(text, vocabulary, silent=_ASKING)
    if request.groups:
        return request
    # "help" alone asks for the tool of that name.
    return _read(text, vocabulary, silent=frozenset(word for word in _ASKING if not vocabulary.known(stem(word))))


def telling_terms(text: str) -> frozenset[str]:
    """Return the stems of the words that say what a search is for: no arguments, names, numbers or words of asking."""
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
            # A capital inside a sentence marks a proper name; capitals throughout (PDF, SQL) do not.
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
    """Yield the parts of a word that say something, and the whole where a tool has it."""
    parts = word_parts(word, spoken)
    for part in parts:
        # After pairs of characters, of scripts without spaces, no whole follows.
        is_whole = len(parts) > 1 and part is parts[-1] and (len(part) > 2 or part.isascii())
        if part not in silent and not (is_whole and not vocabulary.known(stem(part))):
            yield part


def _own_terms(part: str, following: str, spoken: Languages, vocabulary: Vocabulary) -> list[str]:
    """Return the terms of visible tools that a word itself is, alone or with the one after it."""
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
    """Return what a word that no tool has is written together from or spelled nearly like, and whether it is known."""
    known, term = vocabulary.known, stem(part)
    if halves := _split_compound(part, known):
        return dict.fromkeys(halves, _SPLIT_SHARE), vocabulary.together(*halves)
    if similar:
        return {}, True
    if len(term) <= 3:  # a shorter word has no spelling near it
        return {}, False
    near = spellings_near(term, vocabulary.postings, known=known, least=_LEAST_SPELLING, count=SEARCH_SPELLINGS)
    exact = {other: _SPELLING_SHARE * share for other, share in near}
    return exact, len(part) >= _LEAST_SLIPPED and any(_is_one_slip(term, other) for other in exact)


def _guesses(part: str, term: str, vocabulary: Vocabulary) -> dict[str, float]:
    """Return what a word may mean that no tool has and that is spelled nearly like none: in English, or a slip."""
    known = vocabulary.known
    if meant := [other for other in english_of(part) if known(other)]:
        return dict.fromkeys(meant, 1.0)
    slips = {other for form in {term, part} for other in _slips_of(form, vocabulary.postings) if known(other)}
    # In an order of their own: sums of floats depend on it.
    return dict.fromkeys(sorted(slips), _SPELLING_SHARE)


def _slips_of(word: str, postings: Postings) -> list[str]:
    """Return the terms that a word is with a letter too few, too many or another, or with two exchanged."""
    if not _LEAST_GUESSED_CHARS <= len(word) <= SEARCH_GUESSED_CHARS or not word.isalpha():
        return []
    return [other for other in terms_alike(word, postings) if other.isalpha() and _is_one_slip(word, other)]


def _is_one_slip(word: str, other: str) -> bool:
    """Tell whether a letter too many, too few, another or two exchanged make one word the other."""
    start = 0
    for letter, meant in zip(word, other, strict=False):
        if letter != meant:
            break
        start += 1
    rest, due = word[start:], other[start:]
    is_exchanged = rest[:2] == due[1::-1] and rest[2:] == due[2:]
    return rest[1:] == due[1:] or rest == due[1:] or rest[1:] == due or is_exchanged


def _split_compound(word: str, known: Callable[[str], bool]) -> tuple[str, str] | tuple[()]:
    """Return the two known terms that a word is written together from ("filesystem" finds file_system), or nothing."""
    for cut in range(3, len(word) - 2) if len(word) <= SEARCH_COMPOUND_CHARS else ():
        if known(first := stem(word[:cut])) and known(second := stem(word[cut:])):
            return first, second
    return ()
