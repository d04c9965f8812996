"""Schema references: resolves the references in a schema to the parts that they may mean, so that no part is missed.

Engines follow references by the many rules of URIs: nested identifiers that change the base, `..`, escapes, anchors,
and those of earlier drafts. Here a reference is followed only if it can be read in one way; if names are duplicated, it
leads to every part with that name. All other references are refused.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple
from urllib.parse import unquote, urljoin

from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSON, JSONValue, at_pointer, is_list, is_object

SCHEMA_BASES = 16  # base URIs for the references of one part of a schema

_STEP = r"[A-Za-z0-9_~-][A-Za-z0-9._~-]*"
_NO_PATH = re.compile(r"https?://[^/]+")
# The identifier of a schema without one.
_OWN_BASE = "http://schema.invalid/"
_LANGUAGE = re.compile(r"https?://json-schema\.org/")
_SHOWN_CHARS = 80  # characters of a reference in an error


class _Place(NamedTuple):
    """The place of a part: the surrounding parts with an identifier, and the base URIs of its references."""

    resources: tuple[JSON, ...]
    bases: frozenset[str]


class SchemaReferences:
    """The references of one schema."""

    def __init__(self, whole: JSON) -> None:
        self._whole = _Place((whole,), frozenset((_OWN_BASE,)))
        self._places: dict[int, _Place] = {}
        self._resources: dict[str, list[JSON]] = {}
        self._anchors: dict[str, list[JSON]] = {}
        # In draft 2019: the parts that `$recursiveRef` may mean anywhere.
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
        """Return the parts that a reference in `holder` may mean; empty for one to the meta-schema.

        Raises:
            DefinitionError: it leads to nothing here, or has a form that is not followed.
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
        """Return the parts that a `$recursiveRef` may mean; the engine chooses by the path that leads there."""
        return [*self.targets(reference, holder), *self._recursive]

    def _named(self, part: JSON, place: _Place) -> _Place:
        """Record the names of a part, and return its place."""
        for rule in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := part.get(rule), str):
                self._anchors.setdefault(name, []).append(part)
        if part.get("$recursiveAnchor") is True:
            self._recursive.append(part)
        # Draft 4 (2013) has no `$`.
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
        """Return the parts whose identifier a reference may name.

        Raises:
            DefinitionError: identifiers, or the reference, can be read in more than one way.
        """
        uris = {_joined(base, uri) for base in bases} if _plain().fullmatch(uri) else {None}
        if self._resources and (self._has_odd_names or None in uris):
            raise DefinitionError(
                f"Invalid JSON Schema: {uri[:_SHOWN_CHARS]!r}, or an `$id`, is not a plain address such as "
                "'parts.json', and is not followed: refer by '#/$defs/NAME'"
            )
        return [part for each in uris if each is not None for part in self._resources.get(each, ())]


# Few schemas name others, and this pattern is slow to compile.
@cache
def _plain() -> re.Pattern[str]:
    """Match a URI without default ports, escapes, `.` and `..`, queries and empty steps: it has only one spelling."""
    return re.compile(
        rf"(?:https?://[a-z0-9.-]+(?::(?!0|80\b|443\b)[0-9]{{1,5}})?(?=/|$))?/?(?:{_STEP}/)*(?:{_STEP})?"
        r"|urn:[A-Za-z0-9:._-]+"
    )


def _joined(base: str, uri: str) -> str | None:
    """Return a plain URI resolved against a base; `None` if it can be read in more than one way."""
    if base.startswith("urn:") and ":" not in uri:
        return None
    joined = urljoin(base, uri)
    return f"{joined}/" if _NO_PATH.fullmatch(joined) else joined


def _pointed(base: JSON, fragment: str) -> list[JSONValue]:
    """Return the part that a JSON Pointer leads to, or nothing."""
    if "%2f" in fragment.lower():
        return []  # a step with a slash, or two steps
    return at_pointer(base, unquote(fragment).split("/")[1:])
