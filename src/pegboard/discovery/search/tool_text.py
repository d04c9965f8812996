"""Tool text: the text of a tool for the index, and its weighted terms."""

from __future__ import annotations

from array import array
from collections.abc import Mapping

from msgspec import Struct

from pegboard.discovery.search.name_beginnings import beginnings_of
from pegboard.discovery.search.postings import TermWeights
from pegboard.discovery.search.terms import LANGUAGES, Languages, languages_of, terms_of, words_of


class ToolText(Struct, frozen=True, kw_only=True):
    """The text of a tool for the index.

    `name` is without the namespace; `parameters` are pairs of name and description. `examples` are arguments of example
    calls, `requests` are user requests that the tool serves.
    """

    id: str
    name: str
    title: str = ""
    description: str = ""
    namespace: str = ""
    parameters: tuple[tuple[str, str], ...] = ()
    examples: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()

    @property
    def meaning(self) -> str:
        """The text for an embedder: the tool's name and description."""
        return f"{self.title or self.name}: {self.description}"


class Entry(Struct, frozen=True, kw_only=True):
    """A tool's text with its terms, reused by the next index while the text is the same."""

    text: ToolText
    terms: TermWeights
    language_bits: int  # one bit for each of LANGUAGES
    beginnings: Mapping[str, float]  # forms of its name by their worth, see `beginnings_of`


class _Field(Struct, frozen=True, kw_only=True):
    weight: float
    usual_length: float
    damping: float  # how much less a word counts in a long field: 0 not at all, 1 in proportion to the length


# The same for every catalog. Usual lengths are constants, so that a tool's weights do not depend on other tools.
_NAME = _Field(weight=2.0, usual_length=3, damping=0.3)
_TITLE = _Field(weight=1.0, usual_length=3, damping=0.3)
_NAMESPACE = _Field(weight=1.0, usual_length=2, damping=0.3)
_DESCRIPTION = _Field(weight=1.0, usual_length=14, damping=0.75)
_EXAMPLES = _Field(weight=0.7, usual_length=14, damping=0.75)
_REQUESTS = _Field(weight=0.7, usual_length=14, damping=0.75)
_PARAMETER_NAMES = _Field(weight=0.7, usual_length=4, damping=0.75)
_PARAMETER_TEXTS = _Field(weight=0.4, usual_length=20, damping=0.75)


def read_tool(text: ToolText) -> Entry:
    """Return the terms of a tool with BM25F weights, summed over its fields before saturation."""
    fields, languages = weights_by_field(text)
    pooled: dict[str, float] = {}
    for weights in fields.values():
        for term, weight in weights.items():
            pooled[term] = pooled.get(term, 0.0) + weight
    return Entry(
        text=text,
        terms=TermWeights(terms=tuple(pooled), weights=array("f", pooled.values())),
        language_bits=sum(1 << LANGUAGES.index(language) for language in languages),
        beginnings=beginnings_of(text.name, text.namespace),
    )


def weights_by_field(text: ToolText) -> tuple[dict[str, dict[str, float]], Languages]:
    """Return the weight of each term in each field of a tool, and the languages of its prose."""
    name, title, namespace = words_of(text.name), words_of(text.title), words_of(text.namespace)
    description, examples = words_of(text.description), words_of(" ".join(text.examples))
    requests = words_of(" \n".join(text.requests))
    parameter_names = words_of(" ".join(name for name, _ in text.parameters))
    parameter_texts = words_of(" ".join(description for _, description in text.parameters))
    languages = languages_of((*title, *description, *parameter_texts, *examples, *requests))
    fields: dict[str, dict[str, float]] = {}
    for name_of_field, field, words in (
        ("name", _NAME, name),
        ("title", _TITLE, title),
        ("namespace", _NAMESPACE, namespace),
        ("description", _DESCRIPTION, description),
        ("examples", _EXAMPLES, examples),
        ("requests", _REQUESTS, requests),
        ("parameter names", _PARAMETER_NAMES, parameter_names),
        ("parameter descriptions", _PARAMETER_TEXTS, parameter_texts),
    ):
        weights = fields[name_of_field] = {}
        terms = terms_of(words, languages)
        damped = 1 - field.damping + field.damping * len(terms) / field.usual_length
        for term in terms:
            weights[term] = weights.get(term, 0.0) + field.weight / damped
    return fields, languages
