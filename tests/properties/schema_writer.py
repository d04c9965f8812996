"""Schema writer: schemas that multiply, and values of every size and shape, the same ones for the same seed."""

import json
import random
from typing import Any

PATTERNS = [
    r"(a{1,20}b?){10}c", r"a[ab]{20}c", r"([ab]{0,60}a){2}c", r"^\S+$", r"(?=(a+)+b)a", r"(?!.*x).*z$", r"(a*)\1b",
    r"(a|b)*a(a|b)(a|b)c", r"\w+\s", r"(.*a){9}b", r"^[^<>]{1,500}$",
]  # fmt: skip
FORMATS = [
    "email", "uri", "date-time", "regex", "idn-hostname", "hostname", "uuid", "json-pointer", "ipv6", "duration", "iri",
]  # fmt: skip
KINDS = ["string", "integer", "object", "array", "boolean", "null", "number"]


class SchemaWriter:
    """Writes one schema of so many parts."""

    def __init__(self, draw: random.Random, parts: int) -> None:
        self.draw, self.left = draw, parts
        self.names = [f"d{number}" for number in range(draw.choice([0, 1, 2, 4, 8, 16, 30, 70]))]
        self.known: list[str] = []

    def schema(self) -> Any:
        defs: dict[str, Any] = {}
        for name in self.names:
            defs[name] = self.layer() if self.known and self.draw.random() < 0.5 else self.part(4)
            self.known.append(name)
        last = {"$ref": f"#/$defs/{self.names[-1]}"} if self.names else self.leaf()
        return {"type": "object", "properties": {"x": self.part(10), "y": last}, "$defs": defs}

    def layer(self) -> Any:
        """Return a subschema that leads to the one before it by several ways."""
        below = {"$ref": f"#/$defs/{self.known[-1]}"}
        together = {self.draw.choice(["anyOf", "oneOf", "allOf"]): [below] * self.draw.choice([1, 2, 2, 3])}
        return self.draw.choice([
            together, {"items": together}, {"additionalProperties": together}, {"properties": {"k0": together}},
            {**together, "unevaluatedProperties": False}, {"contains": below, "items": below}, {"not": together},
            {"propertyNames": below, "additionalProperties": together}, {"if": below, "then": below, "else": below},
            {"dependentSchemas": {"k0": below, "k1": below}}, {**together, "unevaluatedItems": False},
        ])  # fmt: skip

    def below(self) -> Any:
        """Return a reference from inside a value, where one may lead back to where it stands."""
        if self.names and self.draw.random() < 0.3:
            return {"$ref": "#/$defs/" + self.draw.choice(self.names)}
        return self.part(4)

    def part(self, depth: int) -> Any:
        draw = self.draw
        self.left -= 1
        if self.left < 0 or depth <= 0:
            known = self.known and draw.random() < 0.6
            return {"$ref": "#/$defs/" + draw.choice(self.known)} if known else self.leaf()
        inner = [self.part(depth - 1) for _ in range(draw.choice([1, 2, 2, 3, 6]))]
        first, last = inner[0], inner[-1]
        deeper = self.below() if depth > 2 else first
        forms: list[Any] = [
            {draw.choice(["allOf", "anyOf", "oneOf"]): inner},
            {"not": first},
            {"if": first, "then": last, "else": inner[len(inner) // 2]},
            {"properties": {f"k{number}": part for number, part in enumerate([*inner, deeper])}, "required": ["k0"]},
            {"additionalProperties": deeper, "propertyNames": first},
            {"items": deeper, "uniqueItems": draw.random() < 0.3},
            {"prefixItems": inner, "items": deeper},
            {"contains": deeper, "minContains": draw.choice([0, 1, 3])},
            {"patternProperties": {draw.choice(PATTERNS): first, "k": last}, "additionalProperties": deeper},
            {"dependentSchemas": {"k0": first, "a": last}},
            {"unevaluatedProperties": draw.choice([False, deeper]), "anyOf": inner},
            {"unevaluatedItems": False, "allOf": [first], "anyOf": inner},
            {"$dynamicRef": "#node", "$defs": {"node": {"$dynamicAnchor": "node", "type": draw.choice(KINDS)}}},
        ]
        return draw.choice([*forms, self.leaf()])

    def leaf(self) -> Any:
        draw = self.draw
        options = [draw.choice([n, str(n), [n], {"a": n}]) for n in range(draw.choice([1, 3, 30, 400]))]
        return draw.choice([
            {"type": draw.choice(KINDS)}, {"pattern": draw.choice(PATTERNS)}, {"format": draw.choice(FORMATS)},
            {"enum": options}, {"const": draw.choice([1, "a", [0] * 300, {"a": 1}])}, {"uniqueItems": True},
            {"maxLength": draw.choice([1, 10**7])}, {"multipleOf": 0.01}, {"additionalProperties": False},
            {"required": [f"k{number}" for number in range(draw.choice([1, 5, 200]))]}, {"minItems": 10**6}, True,
        ])  # fmt: skip


def value(draw: random.Random) -> Any:
    """Return a value as an attacker may send it: long, wide, deep or all of them."""

    def text() -> str:
        size = draw.choice([1, 30, 3_000, 30_000, 400_000])
        return draw.choice(["", "k0", "2020-01-01T00:00:00Z", "a" * size, "ab" * (size // 20), "é" * (size // 20)])

    def scalar() -> Any:
        return draw.choice([0, 1, -1, 1.5, True, None, 10**20, "a", text()])

    def grown(depth: int, width: int) -> Any:
        if depth <= 0:
            return scalar()
        inner = [grown(depth - 1, width) for _ in range(width)]
        return inner if draw.random() < 0.5 else {f"k{number}": item for number, item in enumerate(inner)}

    count = draw.choice([10, 1_000, 30_000])
    return draw.choice([
        scalar,
        lambda: grown(draw.choice([10, 30, 60]), 1),
        lambda: grown(draw.choice([2, 4, 8]), 2),
        lambda: grown(2, draw.choice([5, 20])),
        lambda: [draw.choice([0, "a", None, {}, []]) for _ in range(count)],
        lambda: [draw.choice([1, [1], {"a": 1}, 1.5])] * count,
        lambda: {f"k{number}": draw.choice([0, "a", []]) for number in range(min(count, 9_000))},
        lambda: [{f"k{key}": key for key in range(5)} for _ in range(count // 5)],
        lambda: {"k0": text(), "a": [text()]},
    ])()  # fmt: skip


def written(seed: int) -> tuple[Any, list[Any]]:
    """Return a schema and arguments to judge by it."""
    draw = random.Random(seed)
    schema = SchemaWriter(draw, draw.choice([10, 60, 300])).schema()
    attacks = [{"x": value(draw), "y": value(draw)} for _ in range(4)]
    return json.loads(json.dumps(schema)), [*attacks, {"x": [1.5, 10**20], "y": "a"}]
