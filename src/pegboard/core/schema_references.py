"""Schema references: which parts of a schema a reference in it may mean, so that no part is reached unseen.

Engines follow references by the rules of URIs, of which there are many: identifiers that change what others begin at,
`..`, escapes, anchors, those of earlier drafts. Here a reference is followed if it can be read in one way, to all parts
that may be meant where names are given twice; every other one is refused.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple
from urllib.parse import unquote, urljoin

from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSON, JSONValue, at_pointer, is_list, is_object

SCHEMA_BASES = 16  # URIs that the references of one part of a schema may begin at

_STEP = r"[A-Za-z0-9_~-][A-Za-z0-9._~-]*"
_NO_PATH = re.compile(r"https?://[^/]+")
# What a schema without an identifier has for one.
_OWN_BASE = "http://schema.invalid/"
_LANGUAGE = re.compile(r"https?://json-schema\.org/")
_SHOWN_CHARS = 80  # how much of a reference is shown


class _Place(NamedTuple):
    """Where a part stands: the parts around it that have an identifier, and the URIs that its references begin at."""

    resources: tuple[JSON, ...]
    bases: frozenset[str]


class SchemaReferences:
    """The references of one schema."""

    def __init__(self, whole: JSON) -> None:
        self._whole = _Place((whole,), frozenset((_OWN_BASE,)))
        self._places: dict[int, _Place] = {}
        self._resources: dict[str, list[JSON]] = {}
        self._anchors: dict[str, list[JSON]] = {}
        # Of the draft of 2019: those that `$recursiveRef` may mean wherever it stands.
        self._recursive: list[JSON] = []
        self._has_odd_names = False
        waiting: list[tuple[JSONValue, _Place]] = [(whole, self._whole)]
        while waiting:
            part, place = waiting.pop()
            if is_object(part):
                place = self._named(part, place)
                if place is not self._whole:
                    known = self._places.get(id(part), place)
                    self._places[id(part)] = _Place(known.resources + place.resources, known.bases | place.bases)
            inner = part.values() if is_object(part) else part if is_list(part) else ()
            waiting += [(each, place) for each in inner if is_object(each) or is_list(each)]

    def targets(self, reference: str, holder: JSON) -> list[JSONValue]:
        """Return what a reference may mean that stands in `holder`; nothing for a schema of the schema language.

        Raises:
            DefinitionError: it leads to nothing here, or is written in a way that is not followed.
        """
        uri, _, fragment = reference.partition("#")
        place = self._places.get(id(holder), self._whole)
        resources = self._of_uri(uri, place.bases) if uri else [*place.resources]
        if not fragment:
            targets: list[JSONValue] = [*resources]
        elif fragment.startswith("/"):
            targets = [part for base in resources for part in _pointed(base, fragment)]
        else:
            targets = [*self._anchors.get(fragment, [])]
        if not targets and not _LANGUAGE.match(uri):
            raise DefinitionError(
                f"Invalid JSON Schema: {reference[:_SHOWN_CHARS]!r} leads outside this schema, or nowhere, and "
                "Pegboard fetches no schema: put it under $defs, and refer to it as '#/$defs/NAME'"
            )
        return targets

    def recursive_targets(self, reference: str, holder: JSON) -> list[JSONValue]:
        """Return what a `$recursiveRef` may mean, which hangs on the way that leads there."""
        return [*self.targets(reference, holder), *self._recursive]

    def _named(self, part: JSON, place: _Place) -> _Place:
        """Note the names of a part, and return where it stands."""
        for rule in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := part.get(rule), str):
                self._anchors.setdefault(name, []).append(part)
        if part.get("$recursiveAnchor") is True:
            self._recursive.append(part)
        # The draft of 2013 has no `$`.
        for rule in ("$id", "id"):
            if not isinstance(name := part.get(rule), str):
                continue
            uri, _, anchor = name.partition("#")
            if anchor:
                self._anchors.setdefault(anchor, []).append(part)
            if uri:
                place = self._identified(part, uri, place)
        return place

    def _identified(self, part: JSON, uri: str, place: _Place) -> _Place:
        uris = {_joined(base, uri) for base in place.bases} if _plain().fullmatch(uri) else {None}
        bases = place.bases.union(uri for uri in uris if uri is not None)
        if None in uris or len(bases) > SCHEMA_BASES:
            self._has_odd_names = True
            bases = place.bases
        for each in bases - place.bases:
            self._resources.setdefault(each, []).append(part)
        return _Place((*place.resources, part), bases)

    def _of_uri(self, uri: str, bases: frozenset[str]) -> list[JSON]:
        """Return the parts with an identifier that a reference may name.

        Raises:
            DefinitionError: identifiers, or the reference, may be read in more than one way.
        """
        uris = {_joined(base, uri) for base in bases} if _plain().fullmatch(uri) else {None}
        if self._resources and (self._has_odd_names or None in uris):
            raise DefinitionError(
                f"Invalid JSON Schema: {uri[:_SHOWN_CHARS]!r}, or an `$id`, is no plain address such as 'parts.json', "
                "and is not followed: refer by '#/$defs/NAME'"
            )
        return [part for each in uris if each is not None for part in self._resources.get(each, ())]


# Few schemas name others, and this takes long to compile.
@cache
def _plain() -> re.Pattern[str]:
    """Match a URI without default ports, escapes, `.` and `..`, queries and empty steps, which has one spelling."""
    return re.compile(
        rf"(?:https?://[a-z0-9.-]+(?::(?!0|80\b|443\b)[0-9]{{1,5}})?(?=/|$))?/?(?:{_STEP}/)*(?:{_STEP})?"
        r"|urn:[A-Za-z0-9:._-]+"
    )


def _joined(base: str, uri: str) -> str | None:
    """Return a plain URI as it stands at a base; `None` where that is read in more than one way."""
    if base.startswith("urn:") and ":" not in uri:
        return None
    joined = urljoin(base, uri)
    return f"{joined}/" if _NO_PATH.fullmatch(joined) else joined


def _pointed(base: JSON, fragment: str) -> list[JSONValue]:
    """Return what a JSON Pointer leads to, or nothing."""
    if "%2f" in fragment.lower():
        return []  # a step with a slash, or two steps
    return at_pointer(base, unquote(fragment).split("/")[1:])
