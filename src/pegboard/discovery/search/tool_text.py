"""Tool text: what the index reads of a tool, and the weighted terms it becomes."""

from __future__ import annotations

from array import array

from msgspec import Struct

from pegboard.discovery.search.postings import TermWeights
from pegboard.discovery.search.terms import LANGUAGES, Languages, languages_of, terms_of, words_of


class ToolText(Struct, frozen=True, kw_only=True):
    """What the index reads of a tool.

    `name` is the tool's own, without its namespace; `parameters` are pairs of name and description. `examples` are
    arguments of example calls, `requests` what people ask for that the tool serves.
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
        """What an embedder reads of the tool: what it is called and what it does."""
        return f"{self.title or self.name}: {self.description}"


class Entry(Struct, frozen=True, kw_only=True):
    """A tool's text and what was made of it, kept from one index to the next while the text stays the same."""

    text: ToolText
    terms: TermWeights
    language_bits: int  # one for each of LANGUAGES


class _Field(Struct, frozen=True, kw_only=True):
    weight: float
    usual_length: float
    damping: float  # how much less a word counts in a field longer than usual: 0 no less, 1 in proportion


# The same for every catalogue. Usual lengths are constants, so that a tool's weights do not depend on its neighbours.
_NAME = _Field(weight=2.0, usual_length=3, damping=0.3)
_TITLE = _Field(weight=1.0, usual_length=3, damping=0.3)
_NAMESPACE = _Field(weight=1.0, usual_length=2, damping=0.3)
_DESCRIPTION = _Field(weight=1.0, usual_length=14, damping=0.75)
_EXAMPLES = _Field(weight=0.7, usual_length=14, damping=0.75)
_REQUESTS = _Field(weight=0.7, usual_length=14, damping=0.75)
_PARAMETER_NAMES = _Field(weight=0.7, usual_length=4, damping=0.75)
_PARAMETER_TEXTS = _Field(weight=0.4, usual_length=20, damping=0.75)


def read_tool(text: ToolText) -> Entry:
    """Return the terms of a tool, pooled over its fields: BM25F's weights before saturation."""
    fields, languages = weights_by_field(text)
    pooled: dict[str, float] = {}
    for weights in fields.values():
        for term, weight in weights.items():
            pooled[term] = pooled.get(term, 0.0) + weight
    return Entry(
        text=text,
        terms=TermWeights(terms=tuple(pooled), weights=array("f", pooled.values())),
        language_bits=sum(1 << LANGUAGES.index(language) for language in languages),
    )


def weights_by_field(text: ToolText) -> tuple[dict[str, dict[str, float]], Languages]:
    """Return what each term weighs in each field of a tool, and the languages that its prose is in."""
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
