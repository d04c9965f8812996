"""Validated entry: a declared tool with checked names and schemas, and its fingerprint."""

from __future__ import annotations

from pegboard.core.digests import digest
from pegboard.core.lifecycle import check_end, with_end
from pegboard.core.names import check_namespace, check_tool_name
from pegboard.core.relaxed_schema import relaxed
from pegboard.core.schema import Compiled, compile_schema
from pegboard.model.bounds import DEFAULT_BOUNDS, Bounds
from pegboard.model.error import DefinitionError, Problem
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.model.record import replace
from pegboard.model.tool import ToolEntry

ROOT_SCHEMA_DEPTH = 16  # nested alternatives of the root schema that are searched for an array


def seal(entry: ToolEntry, bounds: Bounds = DEFAULT_BOUNDS) -> ToolEntry:
    """Return the entry with its fingerprint, after checking names and schemas. Sealed entries are not checked again.

    Raises:
        DefinitionError: an invalid name or schema.
        CallError: `schema_too_complex`.
    """
    entry = with_end(entry)
    if entry.fingerprint:
        return entry
    spec = entry.spec
    if not spec.groups:
        spec = replace(spec, groups=("core",))
        entry = replace(entry, spec=spec)
    if spec.four_eyes and spec.consent == "never":
        spec = replace(spec, consent="always")
        entry = replace(entry, spec=spec)
    try:
        check_tool_name(spec.name)
        check_namespace(spec.namespace)
        check_end(spec)
        check_root(spec.input_schema)
        if spec.task != "forbidden" and spec.factory is not None:
            text = (
                f"task={spec.task!r} cannot be: the factory {spec.factory!r} lives in the process that lends it, and a "
                "task may continue in another. Leave one of them out."
            )
            raise DefinitionError(text)
        if entry.exact_output is None:
            entry = _with_relaxed_output(entry)
            spec = entry.spec
        judges(entry, bounds)
    except DefinitionError as error:
        raise DefinitionError(
            [Problem(where=spec.origin, path=spec.qualified_id, message=str(problem)) for problem in error.problems]
        ) from error
    shown = [spec.definition(), spec.groups, spec.internal_only, str(spec.available), spec.factory]
    if entry.reaches:
        shown.append(entry.reaches)
    if spec.four_eyes:
        # The approval of one person no longer counts.
        shown.append("four eyes")
    return entry.sealed(digest(shown))


def check_root(schema: object) -> None:
    """Refuse a schema that accepts no object: arguments are passed by name everywhere."""
    kind = schema.get("type", "object") if is_object(schema) else schema
    if kind != "object" and not (is_list(kind) and "object" in kind):
        text = (
            f"The schema of the arguments must be that of an object, not of {kind!r}. Make the value a "
            'property: {"type": "object", "properties": {"value": …}}.'
        )
        raise DefinitionError(text)
    if is_object(schema) and _takes_arrays(schema, schema, set()):
        text = (
            "The schema of the arguments takes an array as well as, or in place of, an object. Leave the array out, or "
            'make it a property: {"type": "object", "properties": {"values": {"type": "array"}}}.'
        )
        raise DefinitionError(text)


def _takes_arrays(schema: object, root: JSON, followed: set[str], depth: int = 0) -> bool | None:
    """Tell whether a schema accepts arrays; `None` if it does not say."""
    if not is_object(schema) or depth > ROOT_SCHEMA_DEPTH:
        return None
    kinds: JSONValue = schema.get("type")
    if kinds is not None:
        return "array" in kinds if is_list(kinds) else kinds == "array"
    told: list[bool | None] = [is_list(schema["const"])] if "const" in schema else []
    allowed: JSONValue = schema.get("enum")
    told += [any(map(is_list, allowed))] if is_list(allowed) else []
    ref: JSONValue = schema.get("$ref")
    if isinstance(ref, str) and ref not in followed:
        followed.add(ref)
        told.append(_takes_arrays(_pointed_at(root, ref), root, followed, depth + 1))
    for rule in ("allOf", "anyOf", "oneOf"):
        parts: JSONValue = schema.get(rule)
        of_parts = [_takes_arrays(part, root, followed, depth + 1) for part in parts] if is_list(parts) else []
        # One alternative that accepts arrays is enough; only all together exclude them.
        if rule != "allOf" and of_parts:
            of_parts = [True if True in of_parts else None if None in of_parts else False]
        told += of_parts
    return False if False in told else True if True in told else None


def _pointed_at(root: JSON, ref: str) -> JSONValue:
    part: JSONValue = root
    for step in ref.removeprefix("#").split("/")[1:]:
        part = part.get(step.replace("~1", "/").replace("~0", "~")) if is_object(part) else None
    return part


def enforced_schema(entry: ToolEntry) -> JSON:
    """Return the schema for validating arguments: our own tools refuse unknown ones, whatever they publish."""
    schema = entry.spec.input_schema
    if entry.is_foreign or entry.spec.allow_unknown:
        return schema
    if "additionalProperties" in schema or "unevaluatedProperties" in schema:
        return schema
    # With these keywords `additionalProperties` would not see the properties that they declare.
    composed = {"allOf", "anyOf", "oneOf", "$ref", "if", "dependentSchemas"} & set(schema)
    return {**schema, "unevaluatedProperties" if composed else "additionalProperties": False}


def _with_relaxed_output(entry: ToolEntry) -> ToolEntry:
    """Return the entry with the output schema that is enforced, which is also the published one."""
    spec = entry.spec
    promised = spec.output_schema
    is_strict = spec.output_check == "strict" or (spec.output_check is None and not entry.is_foreign)
    if is_strict or promised is None:
        return entry
    return replace(entry, spec=replace(spec, output_schema=relaxed(promised)), exact_output=promised)


def judges(entry: ToolEntry, bounds: Bounds) -> tuple[Compiled, Compiled | None, Compiled | None]:
    """Return the validators of arguments, of results if there is an output schema, and of warnings only."""
    promised, exact = entry.spec.output_schema, entry.exact_output
    output = None if promised is None else compile_schema(promised, bounds=bounds)
    warns = None if exact is None or exact == promised else compile_schema(exact, bounds=bounds)
    return compile_schema(enforced_schema(entry), bounds=bounds), output, warns
