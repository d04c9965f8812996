"""Field: describes one parameter beyond its annotation."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct, field

from pegboard.core.json_text import json_bytes
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSON

MISSING: Final = object()
# Python spellings of JSON Schema keywords; all other keywords are passed through unchanged.
_SPELLINGS = {
    "min_length": "minLength",
    "max_length": "maxLength",
    "min_items": "minItems",
    "max_items": "maxItems",
    "unique_items": "uniqueItems",
    "multiple_of": "multipleOf",
    "exclusive_minimum": "exclusiveMinimum",
    "exclusive_maximum": "exclusiveMaximum",
    "ge": "minimum",
    "le": "maximum",
    "gt": "exclusiveMinimum",
    "lt": "exclusiveMaximum",
    "read_only": "readOnly",
    "write_only": "writeOnly",
    "prefix_items": "prefixItems",
    "content_media_type": "contentMediaType",
    "content_encoding": "contentEncoding",
    "min_properties": "minProperties",
    "max_properties": "maxProperties",
    "property_names": "propertyNames",
    "pattern_properties": "patternProperties",
    "additional_properties": "additionalProperties",
    "min_contains": "minContains",
    "max_contains": "maxContains",
}
# The keywords of JSON Schema 2020-12: a near miss is refused as a typo, any other name is a custom keyword.
_WORDS = (
    frozenset(_SPELLINGS)
    | frozenset(_SPELLINGS.values())
    | frozenset(
        "type enum const title format pattern minimum maximum examples deprecated items contains properties required "
        "allOf anyOf oneOf not if then else dependentSchemas dependentRequired unevaluatedItems unevaluatedProperties "
        "contentSchema description default aliases publish_alias allow_blank".split()
    )
)


class FieldSpec(Struct, frozen=True, kw_only=True):
    """The settings of a `Field(…)`. `keywords` are JSON Schema keywords in their original spelling."""

    default: Any = MISSING
    aliases: tuple[str, ...] = ()
    publish_alias: bool = False
    allow_blank: bool = False
    keywords: JSON = field(default_factory=dict[str, Any])


def Field(  # noqa: N802 - reads as a class where it is used, like pydantic's
    default: Any = MISSING,
    *,
    description: str = "",
    aliases: Sequence[str] = (),
    publish_alias: bool = False,
    allow_blank: bool = False,
    **keywords: Any,
) -> Any:
    """Describe one parameter of a class tool, or of a function within `Annotated`.

    Args:
        default: the value of a missing argument; without it the argument is required. Each call gets a copy.
        description: its meaning; an empty one is left out.
        aliases: other names that are accepted on input, hidden from the schema unless `publish_alias`.
        publish_alias: show the aliases in the schema too.
        allow_blank: a required string of a class may be empty or only white space.
        keywords: any JSON Schema keyword, e.g. `pattern=`, `minimum=`, `enum=`; `min_length` means
            `minLength`, and `not_` means `not`.

    Raises:
        DefinitionError: a keyword is misspelled, or its value is not JSON.
    """
    schema_keywords = {_keyword(name): _json(name, value) for name, value in keywords.items()}
    if description:
        schema_keywords["description"] = description
    return FieldSpec(
        default=MISSING if default is ... else default,
        aliases=(aliases,) if isinstance(aliases, str) else tuple(aliases),
        publish_alias=publish_alias,
        allow_blank=allow_blank,
        keywords=schema_keywords,
    )


def _keyword(name: str) -> str:
    bare = name.rstrip("_")
    if bare == "default_factory":
        raise DefinitionError("Field(default_factory=…) is not needed: write default=[…]; every call has its own.")
    near: list[str] = [] if bare in _WORDS else difflib.get_close_matches(bare, _WORDS, n=1, cutoff=0.8)
    if near:
        raise DefinitionError(f"Field({name}=…): unknown keyword {name!r}. Did you mean {near[0]!r}?")
    return _SPELLINGS.get(bare, bare)


def _json(name: str, value: Any) -> Any:
    try:
        json_bytes(value)
    except (TypeError, ValueError) as error:
        raise DefinitionError(f"Field({name}={value!r}): a JSON Schema keyword needs a JSON value ({error}).") from None
    return value
