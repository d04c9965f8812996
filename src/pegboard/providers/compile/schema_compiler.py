"""Schema compiler: rewrites one tool's schema for a target, with the conversion back and a list of losses."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

from msgspec import Struct, field

from pegboard.core.json_text import json_bytes
from pegboard.core.names import MAX_NAME_CHARS
from pegboard.model.bounds import KIB
from pegboard.model.json_types import JSON, JSONValue, is_object
from pegboard.providers.compile.alternatives import (
    alternatives,
    chooser,
    one_object,
    only_together,
    together,
    union_node,
)
from pegboard.providers.compile.arrays import array_node
from pegboard.providers.compile.descriptions import described, drop
from pegboard.providers.compile.merging import ReportUnmerged, merged
from pegboard.providers.compile.nodes import Node, Place, Restore, as_text, nullable, written
from pegboard.providers.compile.objects import object_node
from pegboard.providers.compile.references import circular, resolved
from pegboard.providers.compile.refusals import schema_problems, without_largest_enums
from pegboard.providers.compile.scalars import container_enum, kinds_of, scalar_node, typed
from pegboard.providers.dialect import Dialect, Effect, Loss, is_annotation
from pegboard.providers.targets import dialect_of

COMPILED_PLACES = 2_000  # places of a schema that are compiled, with references followed
INLINED_BYTES = 256 * KIB  # bytes of inlined definitions; often used ones would fill the request
UNROLLED_LEVELS = 2  # unrolled levels of a recursive schema

# They apply in addition to properties or items; no provider supports all, and a rewrite would change their meaning.
_BESIDE = frozenset(
    "not if then else dependentRequired dependentSchemas dependencies propertyNames contains minContains maxContains "
    "unevaluatedItems $dynamicRef".split()
)


class Rewritten(NamedTuple):
    """A schema for one target. `restore` is `None` if arguments need no conversion."""

    schema: JSON
    losses: tuple[Loss, ...] = ()
    restore: Restore | None = None


def rewritten(target: str, schema: JSON) -> Rewritten:
    """Return the schema for a target. A schema that the target accepts is returned unchanged.

    Pure: equal schemas give equal bytes.

    Raises:
        DefinitionError: an unknown target.
    """
    dialect = dialect_of(target)
    if next(schema_problems(dialect, schema), None) is None:
        return Rewritten(schema)
    compiler = SchemaCompiler(schema, dialect)
    node = compiler.whole()
    return Rewritten(node.schema, tuple(compiler.losses), node.restore)


def name_pattern(target: str) -> re.Pattern[str]:
    """Return the pattern of the wire names that the target accepts unchanged.

    Raises:
        DefinitionError: an unknown target.
    """
    return re.compile(dialect_of(target).names)


def target_name(target: str, wire_name: str, qualified_id: str) -> str:
    """Return the name for a target: the wire name, or one with a hash tail if the target does not accept it.

    Raises:
        DefinitionError: an unknown target.
    """
    if name_pattern(target).fullmatch(wire_name):
        return wire_name
    tail = hashlib.sha256(qualified_id.encode()).hexdigest()[:8]
    return f"_{wire_name}"[: MAX_NAME_CHARS - 9] + f"_{tail}"


class SchemaCompiler(Struct, dict=True):  # `dict` for `cached_property`
    """The compilation of one schema for one target: its losses so far, and its recursive definitions."""

    root: JSON
    dialect: Dialect
    losses: dict[Loss, None] = field(default_factory=dict[Loss, None])
    _definitions: dict[str, tuple[str, Node]] = field(default_factory=dict[str, tuple[str, Node]])
    _sizes: dict[str, int] = field(default_factory=dict[str, int])
    _nodes: int = 0
    _inlined: int = 0

    # -- the whole schema

    def whole(self) -> Node:
        """Return the node for the arguments."""
        place, notes = Place(), list[str]()
        core, words, place = self._opened(self.root, place)
        core = one_object(self, core, place, notes)
        node = self._worded(self._of_kind(core, place, notes), words, place, notes)
        definitions = self.definitions()
        if definitions:
            node.schema["$defs"] = definitions
        if self.dialect.max_size is not None:
            for taken in without_largest_enums(node.schema, self.dialect.max_size):
                self.lose(Place(), "enum", "widened", f"{written(taken)[:80]} had an enum too large for the target")
        return node

    def definitions(self) -> JSON:
        """Return the rewritten definitions by name."""
        return {name: node.schema for name, node in self._definitions.values()}

    def lose(self, place: Place, rule: str, effect: Effect, text: str) -> None:
        """Record a rule that cannot be expressed, once."""
        self.losses[Loss(place.path, rule, effect, text)] = None

    # -- one place

    def node(self, schema: JSONValue, place: Place) -> Node:
        """Return the rewritten schema for one place."""
        if not is_object(schema):
            schema = {}
        self._nodes += 1
        ref: Any = schema.get("$ref")
        if self._nodes > COMPILED_PLACES:
            text = f"there are more than {COMPILED_PLACES} places with all references followed"
            return self._cut(schema, place, text)
        if isinstance(ref, str) and ref in self._circular:
            if self._keeps_circles:
                return self._definition(ref, schema, place)
            if place.trail.count(ref) >= UNROLLED_LEVELS:
                target = resolved(self.root, ref)
                return self._cut(
                    target if is_object(target) else {},
                    place,
                    f"{ref!r} contains itself; {UNROLLED_LEVELS} levels are described",
                )
        core, words, place = self._opened(schema, place)
        notes: list[str] = []
        return self._worded(self._plain(core, place, notes), words, place, notes)

    def flat(self, schema: JSON, place: Place) -> tuple[JSON, Place]:
        """Return the schema with `$ref` and `allOf` at its top resolved, and the place with the references followed."""
        while "$ref" in schema or "allOf" in schema:
            beside = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
            ref: Any = schema.get("$ref")
            parts: list[JSONValue] = []
            if isinstance(ref, str):
                parts.append(self._followed(ref, place))
                place = place._replace(trail=(*place.trail, ref))
            parts.extend(schema.get("allOf") or ())
            whole: JSON = {}
            for part in parts:
                if is_object(part):
                    own, inner = self.flat(part, place)
                    place = place._replace(trail=inner.trail)
                    if "unevaluatedProperties" in own:
                        # A part of `allOf` does not see the others: all properties that it does not declare are
                        # additional for it.
                        own = {
                            **own,
                            "additionalProperties": own.get("additionalProperties", own["unevaluatedProperties"]),
                        }
                        del own["unevaluatedProperties"]
                    whole = merged(whole, own, self._unmerged(place))
                elif part is False:
                    self.lose(place, "allOf", "widened", "nothing fits one of its parts")
            schema = merged(whole, beside, self._unmerged(place))
        return schema, place

    def _followed(self, ref: str, place: Place) -> JSONValue:
        """Return the target of a reference; only its type if following it would not end or take too much."""
        target = resolved(self.root, ref)
        if ref not in self._sizes:
            self._sizes[ref] = 16 + len(json_bytes(target))
        self._inlined += self._sizes[ref]
        if target is not None and place.trail.count(ref) <= UNROLLED_LEVELS and self._inlined <= INLINED_BYTES:
            return target
        self.lose(place, "$ref", "widened", f"{ref!r} cannot be followed here")
        kind: Any = target.get("type") if is_object(target) else None
        return {} if kind is None else {"type": kind}

    def _unmerged(self, place: Place) -> ReportUnmerged:
        return lambda key: self.lose(place, key, "widened", f"two {key!r} cannot be said at once; the first one is")

    def _opened(self, schema: JSON, place: Place) -> tuple[JSON, JSON, Place]:
        """Return the validating keywords and the annotations separately."""
        flat, place = self.flat(schema, place)
        words = {key: value for key, value in flat.items() if is_annotation(key)}
        core = {key: value for key, value in flat.items() if key not in words and key not in ("$defs", "definitions")}
        if "const" in core:
            constant = core.pop("const")
            core = merged({"enum": [constant]}, core, self._unmerged(place))
        return core, words, place

    def _plain(self, core: JSON, place: Place, notes: list[str]) -> Node:
        if "anyOf" in core or "oneOf" in core:
            keyword, branches, base = alternatives(self, core, place)
            if only_together(branches, base):
                together(self, keyword, branches, place, notes)
                return self._plain(base, place, notes)
            return union_node(self, core, place, self.definitions)
        kinds = kinds_of(core)
        if not kinds and "enum" in core:
            self.lose(place, "enum", "widened", "none of the listed values has the type")
            return self._plain({key: value for key, value in core.items() if key != "enum"}, place, notes)
        if not kinds:
            return as_text("Any JSON value") if self.dialect.is_strict else Node({})
        if "type" not in core and "enum" not in core:
            self.lose(place, "type", "narrowed", f"taken for {' or '.join(kinds)}, as its keywords tell")
        solid = [kind for kind in kinds if kind != "null"]
        nodes = [self._of_kind(typed(core, kind), place, notes) for kind in solid or ["null"]]
        if len(nodes) == 1:
            return nullable(nodes[0]) if "null" in kinds and solid else nodes[0]
        union = Node({"anyOf": [node.schema for node in nodes]}, chooser(nodes, self.definitions))
        return nullable(union) if "null" in kinds else union

    def _of_kind(self, core: JSON, place: Place, notes: list[str]) -> Node:
        for keyword in _BESIDE:
            if keyword in core:
                drop(self, place, keyword, core[keyword], notes)
        core = {key: value for key, value in core.items() if key not in _BESIDE}
        is_container = core["type"] in ("object", "array")
        if not is_container:
            return scalar_node(self, core, place, notes)
        if "enum" in core:
            return container_enum(self, core)
        if self.dialect.max_depth is not None and place.depth >= self.dialect.max_depth:
            self.lose(place, "depth", "widened", "nested too deep to be described; it is written as JSON text")
            return as_text(f"A JSON {core['type']}")
        make = object_node if core["type"] == "object" else array_node
        return make(self, core, place, notes)

    def _worded(self, node: Node, words: JSON, place: Place, notes: list[str]) -> Node:
        """Return the node with its annotations: as keywords if the target supports them, else in the description."""
        hints: JSON = {}
        for keyword, value in words.items():
            if keyword in ("title", "description"):
                continue
            is_same = node.restore is None or not isinstance(value, dict | list)
            is_default = keyword in ("default", "example", "examples")
            if self.dialect.takes(keyword) and not (is_default and not is_same) and not keyword.startswith("$"):
                hints[keyword] = value
            elif keyword == "default" and value is None:
                # A missing keyword means the same.
                continue
            else:
                drop(self, place, keyword, value, notes)
        node = described(node, words, notes)
        return Node({**node.schema, **hints}, node.restore)

    # -- recursive schemas

    @cached_property
    def _circular(self) -> frozenset[str]:
        return circular(self.root)

    @cached_property
    def _keeps_circles(self) -> bool:
        way = self.dialect.recursion
        return way == "any" or (way == "optional" and not circular(self.root, always=True))

    def _definition(self, ref: str, schema: JSON, place: Place) -> Node:
        """Return a reference to the rewritten definition, which is created on first use."""
        for keyword, value in schema.items():
            if keyword != "$ref":
                drop(self, place, keyword, value, [])
        if ref not in self._definitions:
            taken = {name for name, _ in self._definitions.values()}
            node = Node({})
            self._definitions[ref] = (_free_name(ref, taken), node)
            target = resolved(self.root, ref)
            core, words, inner = self._opened(target if is_object(target) else {}, Place(place.steps, (ref,), 1))
            notes: list[str] = []
            compiled = self._worded(self._plain(core, inner, notes), words, inner, notes)
            node.schema, node.restore = compiled.schema, compiled.restore
        name, definition = self._definitions[ref]
        return Node({"$ref": f"#/$defs/{name}"}, _later(lambda: definition.restore))

    def _cut(self, schema: JSON, place: Place, why: str) -> Node:
        self.lose(place, "$ref", "widened", why)
        kind: Any = schema.get("type")
        if self.dialect.is_strict:
            return as_text("Any JSON value")
        return Node({"type": kind} if isinstance(kind, str) else {})


def _free_name(ref: str, taken: set[str]) -> str:
    bare = re.sub(r"[^A-Za-z0-9_-]", "_", ref.rsplit("/", 1)[-1])[:40] or "root"
    if bare == "_" or bare.startswith("#"):
        bare = "root"
    numbered = (f"{bare}_{number}" for number in range(2, COMPILED_PLACES))
    return next(name for name in (bare, *numbered) if name not in taken)


def _later(restore_of: Callable[[], Restore | None]) -> Restore:
    def restore(value: JSONValue) -> JSONValue:
        known = restore_of()
        return value if known is None else known(value)

    return restore
