"""Instances: values that fit an exported schema, as a model that obeys it would write them."""

import math
import random
from typing import Any

BY_FORMAT = {
    "date-time": "2026-01-31T12:00:00Z", "date": "2026-01-31", "time": "12:00:00Z", "duration": "P1DT2H",
    "email": "ann@example.org", "hostname": "example.org", "ipv4": "192.0.2.1", "ipv6": "2001:db8::1",
    "uuid": "8f14e45f-ceea-467f-a9d6-2c1c4f1f0a11", "uri": "https://example.org/a", "regex": "a+",
    "uri-reference": "/a", "iri": "https://example.org/ä", "iri-reference": "/ä", "idn-email": "ä@example.org",
    "idn-hostname": "example.org", "json-pointer": "/a/0", "relative-json-pointer": "1/a", "uri-template": "/{a}",
}  # fmt: skip
WORDS = ("", "a", "two words", "5", "true", "null", "ünï", '{"a": 1}', "[1, 2]", "x" * 30)


class Writer:
    """Writes values for one root schema; the same seed writes the same."""

    def __init__(self, root: dict[str, Any], seed: int) -> None:
        self.root, self.random = root, random.Random(seed)

    def value(self, schema: Any, depth: int = 0) -> Any:
        pick = self.random
        if not isinstance(schema, dict) or not schema:
            return pick.choice([None, True, 3, 1.5, "text", '{"a": 1}', [1], {"a": "b"}])
        if "$ref" in schema:
            found: Any = self.root
            for step in schema["$ref"].split("/")[1:]:
                found = found[step.replace("~1", "/").replace("~0", "~")]
            return self.value(found, depth + 1)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                branches = [item for item in schema[key] if item != {"type": "null"}] or schema[key]
                return self.value(pick.choice(branches) if depth < 4 else schema[key][-1], depth + 1)
        if "enum" in schema:
            return pick.choice(schema["enum"])
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = "null" if "null" in kind and (depth > 6 or pick.random() < 0.3) else pick.choice(kind)
        return getattr(self, f"_{kind or 'object'}")(schema, depth)

    def _object(self, schema: dict[str, Any], depth: int) -> Any:
        required, pick = schema.get("required", []), self.random
        made = {
            key: self.value(inner, depth + 1)
            for key, inner in schema.get("properties", {}).items()
            if key in required or (depth < 6 and pick.random() < 0.6)
        }
        rest = schema.get("additionalProperties")
        if isinstance(rest, dict) and depth < 6:
            made["further"] = self.value(rest, depth + 1)
        return made

    def _array(self, schema: dict[str, Any], depth: int) -> Any:
        first = schema.get("prefixItems", [])
        least = schema.get("minItems", 0)
        most = min(schema.get("maxItems", least + 3), least + 3)
        count = least if depth > 6 else self.random.randint(least, max(least, most))
        kinds = [*first, *[schema.get("items", {})] * count][:count]
        return [self.value(kind, depth + 1) for kind in kinds]

    def _string(self, schema: dict[str, Any], depth: int) -> Any:
        if "format" in schema and schema["format"] in BY_FORMAT:
            return BY_FORMAT[schema["format"]]
        least, most = schema.get("minLength", 0), schema.get("maxLength", 100)
        word = self.random.choice(WORDS)
        return (word + "w" * max(0, least - len(word)))[:most]

    def _integer(self, schema: dict[str, Any], depth: int) -> Any:
        return self._within(schema, whole=True)

    def _number(self, schema: dict[str, Any], depth: int) -> Any:
        return self._within(schema, whole=False)

    def _within(self, schema: dict[str, Any], *, whole: bool) -> Any:
        least = max(schema.get("minimum", -1_000), schema.get("exclusiveMinimum", -1_001) + 1)
        most = min(schema.get("maximum", least + 1_000), schema.get("exclusiveMaximum", least + 1_001) - 1)
        step = schema.get("multipleOf", 1)
        number = self.random.randint(math.ceil(least / step), max(math.ceil(least / step), math.floor(most / step)))
        made = number * step
        return made if not whole else int(made)

    def _boolean(self, schema: dict[str, Any], depth: int) -> Any:
        return self.random.random() < 0.5

    def _null(self, schema: dict[str, Any], depth: int) -> Any:
        return None
