"""Question words: the words of a question with the terms of the scope that match them, and their weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from pegboard.workspace.analyzer import DEFAULT_LANGUAGE, AskedWord, stems_of, words_of_question
from pegboard.workspace.store.connection import Connection
from pegboard.workspace.store.readable_spaces import ReadableSpaces
from pegboard.workspace.store.scoring import best_score, idf, part_of_score
from pegboard.workspace.store.spellings import NEAR_SPELLINGS, SLIP_CHARS, compounds_of, near_terms, slips_of

SEARCH_DOCUMENT_TERMS = 64  # different words of one question that are scored
# words of one question to choose those from; a question of 10,000 characters has no more
SEARCH_COUNTED_TERMS = 5_000
SEARCH_EXPANDED_WORDS = 16  # words of one question whose compounds and near spellings are looked up
_COUNTED_AT_ONCE = 1_000  # terms in one statement
_SHOWN_WORDS = 5  # words that a note lists

# Shares of the weight of a word.
_OF_WHOLE: Final = 0.1  # words that are also written together: `file system`, where a passage has `filesystem`
_OF_PART: Final = 0.5  # a part of a name: `wx` for `wx1077`
_OF_COMPOUND: Final = 0.5  # a compound that contains the word
_OF_SPLIT: Final = 0.7  # a part of a compound
_OF_NEAR: Final = 0.7  # a similar spelling
_TELLING: Final = 1_000  # passages of which even a part of a name that all have is searched
_RARE: Final = 3  # passages with a word that may be a typing slip, there or in the question
_MORE_OFTEN: Final = 20  # as many times more passages have the word that was meant
_FEW: Final = 5  # passages with a similar spelling of a compound, below which its parts are searched too
_COMPOUNDING: Final = frozenset(("german", "dutch", "danish", "swedish", "norwegian"))
_LEAST_PART = 4  # letters of the shortest part of a compound
_MOST_PARTS = 3


class _Group(Struct, frozen=True, kw_only=True):
    """The terms that stand for one word, each with its share, and the weight of the word."""

    terms: Mapping[str, float]
    weight: float


class QuestionWords(Struct, frozen=True, kw_only=True):
    """The words of a question that occur in the scope, with their weights.

    The weight of a word is its rarity times its frequency in the question. `missing` are words that no passage has, and
    `corrected` those whose passages were found by a similar spelling.
    """

    groups: tuple[_Group, ...] = ()
    best: float = 1.0
    average_length: float = 1.0
    missing: tuple[str, ...] = ()
    corrected: tuple[str, ...] = ()

    @classmethod
    def of(cls, db: Connection, within: ReadableSpaces, text: str) -> QuestionWords:
        """Return the words of a question; without groups if no passage has any."""
        numbers = ",".join(map(str, within.spaces)) or "null"
        size: Any = db.execute(
            f"select coalesce(sum(chunk_count), 0), coalesce(sum(term_total), 0) from spaces where n in ({numbers})"  # noqa: S608 - numbers of ours
        ).fetchone()
        passages, total = int(size[0]), float(size[1])
        languages = _languages_in(db, within)
        counts = Counter(words_of_question(text, languages))
        asked = [each for each, _ in counts.most_common(SEARCH_COUNTED_TERMS)]
        if not asked or not passages:
            return cls()
        reading = _Reading(db=db, within=within, passages=passages, languages=languages)
        having = reading.having(term for each in asked for term in (*each.terms, *each.parts))
        groups: list[_Group] = []
        absent: list[tuple[AskedWord, float]] = []
        due: list[float] = []
        looked_up = 0
        for each in asked:
            known = {term: 1.0 for term in each.terms if term in having}
            # The stems of one word in several languages seldom occur in the same passage.
            count = min(passages, sum(having[term] for term in known))
            if each.is_whole and not known:
                continue
            weight = counts[each] * idf(passages=passages, having=count)
            if each.is_whole and each.word.isalpha():
                weight *= _OF_WHOLE
            due.append(weight)
            parts = [term for term in each.parts if 0 < having.get(term, 0) < reading.too_many]
            groups += (
                _Group(terms={term: 1.0}, weight=_OF_PART * min(weight, reading.rarity(having[term]))) for term in parts
            )
            if not known and not parts:
                absent.append((each, weight))
            elif known:
                looks = not each.is_whole and looked_up < SEARCH_EXPANDED_WORDS and reading.compounds_words
                looked_up += looks
                compounds = reading.compounds(known) if looks else []
                groups.append(_Group(terms={**dict.fromkeys(compounds, _OF_COMPOUND), **known}, weight=weight))
                if not each.is_whole and count <= _RARE and looked_up < SEARCH_EXPANDED_WORDS:
                    looked_up += 1
                    groups += reading.meant_by(each, weight, count)
        missing, corrected = list[str](), list[str]()
        for number, (each, weight) in enumerate(absent):
            others = [*reading.instead_of(each, weight)] if number < SEARCH_EXPANDED_WORDS else []
            groups += others
            (corrected if others else missing).append(each.word)
        # For a very long question the rarest words, since the first ones may be a greeting.
        groups.sort(key=lambda group: -group.weight)
        scored = groups[:SEARCH_DOCUMENT_TERMS]
        return cls(
            groups=tuple(scored),
            # Names are counted by their parts and as a whole, so the due weights may be exceeded.
            best=best_score([max(sum(due), sum(group.weight for group in scored))]),
            average_length=max(1.0, total / passages),
            missing=tuple(missing),
            corrected=tuple(corrected),
        )

    @property
    def note(self) -> str:
        """Say which words were not found; empty if all were."""
        notes: list[str] = []
        if self.corrected:
            notes.append(f"No passage has {_listed(self.corrected)}; passages with similar words are shown.")
        if not self.groups:
            notes.append(
                "No passage has a word of this question, or a similar one. Ask in the language of the documents, or "
                "look for a part of a word with grep_documents."
            )
        elif self.missing:
            notes.append(f"No passage has {_listed(self.missing)}, or a similar word.")
        return " ".join(notes)

    def scored(self, within: ReadableSpaces) -> tuple[str, list[Any]]:
        """Return the statement that scores every passage with such a term, and its values."""
        rows = [
            (term, part, share, group.weight)
            for part, group in enumerate(self.groups)
            for term, share in group.terms.items()
        ]
        if all(len(group.terms) == 1 for group in self.groups):
            # Without a step that adds up the terms of a word.
            added = part_of_score(weight="asked.weight", count="postings.count", length="postings.length")
            listed = ", ".join(["(cast(? as text), cast(? as double precision))"] * len(rows))
            statement = f"""
                with asked (term, weight) as (values {listed})
                select postings.chunk_n as n, sum({added}) / {self.best!r} as score
                from asked cross join postings
                where postings.term = asked.term and {within.of("postings")} group by postings.chunk_n
            """  # noqa: S608 - numbers of ours
            values = [value for term, _, _, weight in rows for value in (term, weight)]
            return statement, [*values, self.average_length]
        kinds = "(cast(? as text), cast(? as integer), cast(? as double precision), cast(? as double precision))"
        added = part_of_score(weight="weight", count="count", length="length")
        statement = f"""
            with asked (term, part, share, weight) as (values {", ".join([kinds] * len(rows))}),
            found as (
                select postings.chunk_n as n, asked.part, max(asked.weight) as weight,
                    sum(postings.count * asked.share) as count, max(postings.length) as length
                from asked cross join postings
                where postings.term = asked.term and {within.of("postings")} group by postings.chunk_n, asked.part
            )
            select n, sum({added}) / {self.best!r} as score from found group by n
        """  # noqa: S608 - numbers of ours
        return statement, [*(value for row in rows for value in row), self.average_length]


class _Reading(Struct, frozen=True, kw_only=True):
    """Looks up terms of one scope."""

    db: Connection
    within: ReadableSpaces
    passages: int
    languages: Sequence[str]

    @property
    def too_many(self) -> int:
        """A part of a name in so many passages or more tells nothing, and would cost a look at each of them."""
        return max(_TELLING, self.passages // 2)

    @property
    def compounds_words(self) -> bool:
        """Whether the passages are in a language that writes compounds as one word."""
        return not _COMPOUNDING.isdisjoint(self.languages)

    def rarity(self, having: int) -> float:
        return idf(passages=self.passages, having=min(having, self.passages))

    def having(self, terms: Iterable[str]) -> dict[str, int]:
        """Return the number of the scope's passages with each term; unknown terms are left out."""
        asked = list(dict.fromkeys(terms))
        having: dict[str, int] = {}
        for start in range(0, len(asked), _COUNTED_AT_ONCE):
            some = asked[start : start + _COUNTED_AT_ONCE]
            rows: list[Any] = self.db.execute(
                f"select term, count(*) from postings where {self.within.of('postings')} "  # noqa: S608 - numbers of ours
                f"and term in ({','.join('?' * len(some))}) group by term",
                some,
            ).fetchall()
            having.update((str(term), int(count)) for term, count in rows)
        return having

    def compounds(self, stems: Iterable[str]) -> list[str]:
        """Return compounds with a word."""
        return [term for stem in stems for term in compounds_of(self.db, self.within, stem)]

    def instead_of(self, word: AskedWord, weight: float) -> Iterator[_Group]:
        """Yield groups for a word that no passage has: compounds with it, its parts, similar spellings."""
        if self.compounds_words:
            compounds = self.compounds(word.terms)
            if compounds:
                count = sum(self.having(compounds).values())
                yield _Group(terms=dict.fromkeys(compounds, 1.0), weight=_OF_COMPOUND * min(weight, self.rarity(count)))
                return
        slips = self._slips_of(word)
        near = [found for stem in word.terms for found in near_terms(self.db, self.within, stem)]
        fewest = 1 if slips else min((found.mistakes for found in near), default=0)
        terms = dict.fromkeys((*slips, *(found.term for found in near if found.mistakes == fewest)))
        count = sum(self.having(terms).values())
        if fewest == 1:
            nearest = _Group(terms=dict.fromkeys(terms, 1.0), weight=_OF_NEAR * min(weight, self.rarity(count)))
            yield nearest
            if count <= _FEW:
                yield from self._besides(word, nearest.weight)
            return
        parts = self.having(self._parts_of(word.word))
        for part, often in parts.items():
            yield _Group(terms={part: 1.0}, weight=_OF_SPLIT * min(weight, self.rarity(often)))
        if terms and not parts:
            yield _Group(terms=dict.fromkeys(terms, 1.0), weight=_OF_NEAR * min(weight, self.rarity(count)))

    def meant_by(self, word: AskedWord, weight: float, count: int) -> Iterator[_Group]:
        """Yield groups for the probable meaning of a rare word: a much more frequent one, or the parts of a compound.

        Args:
            word: a word that few passages have.
            weight: its weight.
            count: the number of those passages.
        """
        for term, often in self._slips_of(word).items():
            if often >= _MORE_OFTEN * count:
                yield _Group(terms={term: 1.0}, weight=_OF_NEAR * self.rarity(often))
        if self.compounds_words:
            yield from self._besides(word, weight)

    def _besides(self, word: AskedWord, weight: float) -> Iterator[_Group]:
        """Yield a group for each part of a compound; together they weigh less than the compound."""
        parts = self.having(self._parts_of(word.word))
        for part, often in parts.items():
            yield _Group(terms={part: 1.0}, weight=_OF_SPLIT * min(weight / len(parts), self.rarity(often)))

    def _slips_of(self, word: AskedWord) -> dict[str, int]:
        """Return the most frequent words that a typing slip may have turned into this one, with their passages."""
        languages = [*dict.fromkeys((*self.languages, DEFAULT_LANGUAGE))]
        stems = dict.fromkeys(stem for slip in slips_of(word.word) for stem in stems_of(slip, languages))
        having = self.having(stem for stem in stems if stem not in word.terms and len(stem) >= SLIP_CHARS[0])
        return dict(sorted(having.items(), key=lambda each: (-each[1], each[0]))[:NEAR_SPELLINGS])

    def _parts_of(self, word: str) -> list[str]:
        """Return the stems of words that make up a compound, and that passages have; empty if there are none."""
        if not word.isalpha() or len(word) < 2 * _LEAST_PART:
            return []
        languages = [*dict.fromkeys((*self.languages, DEFAULT_LANGUAGE))]
        stems = {
            (start, end): stems_of(word[start:end], languages)
            for start in range(len(word))
            for end in range(start + _LEAST_PART, len(word) + 1)
            if end - start < len(word) and (start == 0 or start >= _LEAST_PART) and len(word) - end not in (1, 2, 3)
        }
        having = self.having(stem for each in stems.values() for stem in each)
        known = {
            span: max((stem for stem in each if stem in having), key=having.__getitem__)
            for span, each in stems.items()
            if any(stem in having for stem in each)
        }
        best: list[tuple[int, int]] = []
        fewest: dict[int, list[tuple[int, int]]] = {0: []}
        for start, end in sorted(known, key=lambda span: (span[0], -span[1])):
            if start in fewest and len(fewest[start]) < _MOST_PARTS:
                way = [*fewest[start], (start, end)]
                if end not in fewest or len(way) < len(fewest[end]):
                    fewest[end] = way
        best = fewest.get(len(word), [])
        return [known[span] for span in best]


def _languages_in(db: Connection, within: ReadableSpaces) -> list[str]:
    rows = db.execute(
        f"select language from languages where {within.of('languages')} group by language order by sum(passages) desc"  # noqa: S608 - numbers of ours
    )
    return [str(language) for (language,) in rows]


def _listed(words: Sequence[str]) -> str:
    shown = ", ".join(repr(word) for word in words[:_SHOWN_WORDS])
    return shown if len(words) <= _SHOWN_WORDS else f"{shown} and {len(words) - _SHOWN_WORDS} more words"
