"""Dialect: the part of JSON Schema that a provider accepts, from its public documentation."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from msgspec import Struct

Effect = Literal["widened", "narrowed", "reworded"]

ANY_TEXT: Final = r"[\s\S]*"
PLAIN_NAMES: Final = r"[A-Za-z0-9_-]{1,64}"
COMBINING: Final = frozenset({"anyOf", "oneOf", "allOf"})
# Keywords that every provider with a documented list accepts.
COMMON_KEYWORDS: Final = frozenset(
    "type properties required additionalProperties items anyOf enum $ref $defs title description minimum "
    "maximum".split()
)


class Refused(NamedTuple):
    """A part that a provider would refuse: its place, the rule and a description."""

    path: str
    rule: str
    text: str


class Loss(NamedTuple):
    """A difference between a rewritten schema and the tool's own.

    `widened`: the model may send values that the tool refuses. `narrowed`: the model cannot send some values that the
    tool accepts. `reworded`: validation is unchanged; a hint was moved into the description, or dropped.
    """

    path: str
    rule: str
    effect: Effect
    text: str


class SchemaSize(NamedTuple):
    """The largest whole schema: its number of properties and enum values, and the characters in both.

    An enum of more than `long_enum` values may have `long_enum_chars` characters.
    """

    properties: int
    enum_values: int
    chars: int
    long_enum: int
    long_enum_chars: int


class Dialect(Struct, frozen=True, kw_only=True):
    """The rules of one target; those of a provider are in `openai`, `anthropic`, `gemini` and `mcp`.

    `names` and `keys` are regular expressions for tool names and property names. `keywords` or `formats` of `None`
    means that all are accepted. `recursion="optional"` allows recursion only through optional properties. `is_strict`
    requires closed objects whose properties are all required, unless `keeps_optional`.
    """

    name: str
    names: str
    keys: str = ANY_TEXT
    keywords: frozenset[str] | None = None
    formats: frozenset[str] | None = None
    not_at_root: frozenset[str] = frozenset()
    root_needs_properties: bool = False
    needs_items: bool = False
    is_strict: bool = False
    keeps_optional: bool = False
    scalar_enums: bool = False
    lone_refs: bool = False
    linear_patterns: bool = False
    most_min_items: int | None = None
    recursion: Literal["any", "optional", "never"] = "any"
    max_depth: int | None = None
    max_size: SchemaSize | None = None
    source: str = ""

    def takes(self, keyword: str) -> bool:
        """Tell whether the target accepts the keyword."""
        return self.keywords is None or keyword in self.keywords

    def takes_format(self, form: object) -> bool:
        """Tell whether the target accepts the format."""
        return self.takes("format") and (self.formats is None or form in self.formats)

    def takes_count(self, keyword: str, count: object) -> bool:
        """Tell whether the target accepts this rule about the number of items."""
        is_little = self.most_min_items is None or not isinstance(count, int) or count <= self.most_min_items
        return self.takes(keyword) and (keyword != "minItems" or is_little)


# Annotations: they describe a value and do not change what is valid.
ANNOTATIONS: Final = frozenset(
    "title description default examples example deprecated readOnly writeOnly $comment $schema $id $anchor xml "
    "externalDocs discriminator nullable contentMediaType contentEncoding contentSchema propertyOrdering".split()
)


def is_annotation(keyword: str) -> bool:
    """Tell whether a keyword validates nothing, like unknown keywords."""
    return keyword in ANNOTATIONS or keyword not in JUDGING


JUDGING: Final = frozenset(
    "type enum const properties required additionalProperties unevaluatedProperties patternProperties propertyNames "
    "minProperties maxProperties dependentRequired dependentSchemas dependencies items prefixItems additionalItems "
    "unevaluatedItems contains minContains maxContains minItems maxItems uniqueItems pattern format minLength "
    "maxLength minimum maximum exclusiveMinimum exclusiveMaximum multipleOf anyOf oneOf allOf not if then else $ref "
    "$dynamicRef $defs definitions".split()
)
