"""Dialect: which part of JSON Schema one provider takes, as its public documents say."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from msgspec import Struct

Effect = Literal["widened", "narrowed", "reworded"]

ANY_TEXT: Final = r"[\s\S]*"
PLAIN_NAMES: Final = r"[A-Za-z0-9_-]{1,64}"
COMBINING: Final = frozenset({"anyOf", "oneOf", "allOf"})
# What every provider takes that lists its keywords.
COMMON_KEYWORDS: Final = frozenset(
    "type properties required additionalProperties items anyOf enum $ref $defs title description minimum "
    "maximum".split()
)


class Refused(NamedTuple):
    """Something that a provider would refuse: where, by which rule, in words."""

    path: str
    rule: str
    text: str


class Loss(NamedTuple):
    """What a rewritten schema says otherwise than the tool's own.

    `widened`: the model may say what the tool then refuses. `narrowed`: it cannot say something that the tool takes.
    `reworded`: nothing is judged differently; a hint was moved into the description, or dropped.
    """

    path: str
    rule: str
    effect: Effect
    text: str


class SchemaSize(NamedTuple):
    """How large one schema may be as a whole: so many properties, values of enums, and characters in both.

    An enum of more than `long_enum` values may have `long_enum_chars` characters.
    """

    properties: int
    enum_values: int
    chars: int
    long_enum: int
    long_enum_chars: int


class Dialect(Struct, frozen=True, kw_only=True):
    """The rules of one target; each provider's stand with its wire form, in `openai`, `anthropic`, `gemini` and `mcp`.

    `names` is what a tool may be called, `keys` what a property may, as regular expressions. `keywords` or `formats`
    of `None` means: all of them. `recursion="optional"` allows a schema to contain itself only in properties that are
    not required. `is_strict` wants closed objects of known properties, all of them required unless `keeps_optional`.
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
        """Tell whether the keyword may stand in a schema."""
        return self.keywords is None or keyword in self.keywords

    def takes_format(self, form: object) -> bool:
        """Tell whether the format may be named."""
        return self.takes("format") and (self.formats is None or form in self.formats)

    def takes_count(self, keyword: str, count: object) -> bool:
        """Tell whether a list may be given this rule about its items."""
        is_little = self.most_min_items is None or not isinstance(count, int) or count <= self.most_min_items
        return self.takes(keyword) and (keyword != "minItems" or is_little)


# Said of a value, never judged: what stands in these changes nothing about what is valid.
ANNOTATIONS: Final = frozenset(
    "title description default examples example deprecated readOnly writeOnly $comment $schema $id $anchor xml "
    "externalDocs discriminator nullable contentMediaType contentEncoding contentSchema propertyOrdering".split()
)


def is_annotation(keyword: str) -> bool:
    """Tell whether a keyword judges nothing; unknown ones do not either."""
    return keyword in ANNOTATIONS or keyword not in JUDGING


JUDGING: Final = frozenset(
    "type enum const properties required additionalProperties unevaluatedProperties patternProperties propertyNames "
    "minProperties maxProperties dependentRequired dependentSchemas dependencies items prefixItems additionalItems "
    "unevaluatedItems contains minContains maxContains minItems maxItems uniqueItems pattern format minLength "
    "maxLength minimum maximum exclusiveMinimum exclusiveMaximum multipleOf anyOf oneOf allOf not if then else $ref "
    "$dynamicRef $defs definitions".split()
)
