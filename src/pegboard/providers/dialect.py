"""Dialect: which part of JSON Schema one provider takes, as its public documents say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from pegboard.core.names import nearest
from pegboard.model.error import DefinitionError

Effect = Literal["widened", "narrowed", "reworded"]

OPENAI_NAMES: Final = r"[A-Za-z0-9_-]{1,64}"
_ANY_KEY: Final = r"[\s\S]*"
_CORE: Final = (
    "type properties required additionalProperties items anyOf enum $ref $defs title description minimum maximum"
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialect:
    """The rules of one target. `keywords` or `formats` of `None` means: all of them."""

    name: str
    names: str
    keys: str = _ANY_KEY
    keywords: frozenset[str] | None = None
    formats: frozenset[str] | None = None
    not_at_root: frozenset[str] = frozenset()
    root_needs_properties: bool = False
    needs_items: bool = False
    is_strict: bool = False
    scalar_enums: bool = False
    lone_refs: bool = False
    linear_patterns: bool = False
    recursion: Literal["any", "optional"] = "any"
    max_depth: int | None = None
    source: str = ""

    def takes(self, keyword: str) -> bool:
        """Tell whether the keyword may stand in a schema."""
        return self.keywords is None or keyword in self.keywords

    def takes_format(self, form: object) -> bool:
        """Tell whether the format may be named."""
        return self.takes("format") and (self.formats is None or form in self.formats)


_COMBINED = frozenset({"anyOf", "oneOf", "allOf"})

OPENAI = Dialect(
    name="openai",
    names=OPENAI_NAMES,
    not_at_root=_COMBINED | {"enum", "not"},
    root_needs_properties=True,
    needs_items=True,
    source="OpenAI, function calling: what the API answers with invalid_function_parameters",
)
OPENAI_STRICT = Dialect(
    name="openai_strict",
    names=OPENAI_NAMES,
    keywords=frozenset(
        f"{_CORE} $schema const pattern format multipleOf exclusiveMinimum exclusiveMaximum minItems maxItems".split()
    ),
    formats=frozenset("date-time time date duration email hostname ipv4 ipv6 uuid".split()),
    not_at_root=_COMBINED | {"enum", "not"},
    root_needs_properties=True,
    needs_items=True,
    is_strict=True,
    lone_refs=True,
    linear_patterns=True,
    max_depth=10,
    source="OpenAI, Structured Outputs: supported schemas",
)
ANTHROPIC = Dialect(
    name="anthropic",
    names=OPENAI_NAMES,
    keys=r"[A-Za-z0-9_.-]{1,64}",
    not_at_root=_COMBINED,
    source="Anthropic, tool use: input_schema",
)
GEMINI = Dialect(
    name="gemini",
    names=r"[A-Za-z_][A-Za-z0-9_-]{0,63}",
    keywords=frozenset(f"{_CORE} $id $anchor format prefixItems minItems maxItems oneOf propertyOrdering".split()),
    not_at_root=_COMBINED,
    scalar_enums=True,
    lone_refs=True,
    recursion="optional",
    source="Google, Gemini API: FunctionDeclaration.parametersJsonSchema and the JSON Schema it supports",
)
MCP = Dialect(name="mcp", names=r"[\s\S]*", source="MCP: any JSON Schema 2020-12")

DIALECTS: Final = {item.name: item for item in (OPENAI, OPENAI_STRICT, ANTHROPIC, GEMINI, MCP)}
TARGETS: Final = tuple(DIALECTS)


def dialect(target: str) -> Dialect:
    """Return the dialect of a target.

    Raises:
        DefinitionError: there is no such target.
    """
    found = DIALECTS.get(target)
    if found is None:
        raise DefinitionError(f"Unknown export target {target!r}.{nearest(target, DIALECTS, label='Targets')}")
    return found


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
