"""Tool page: describe one tool in a row or in full."""

from __future__ import annotations

from pegboard.model.decision import Decision
from pegboard.model.json_types import JSON
from pegboard.model.tool import ToolEntry, ToolSpec


def row(entry: ToolEntry, decision: Decision, *, connect: str | None = None) -> JSON:
    """Return the fields of a tool that a list shows. `connect` is the source that its caller must connect to first."""
    spec = entry.spec
    return {
        "name": entry.wire_name,
        "id": spec.qualified_id,
        "namespace": spec.namespace,
        "groups": list(spec.groups),
        "description": first_line(spec.description),
        "hints": [*hints(entry), *([] if connect is None else ["connect first"])],
        "asks": entry.asks_because is not None,
        "connect": connect,
        "visible": decision.visible,
        "code": decision.code,
        "reason": decision.reason,
    }


def whole(entry: ToolEntry, decision: Decision) -> JSON:
    """Return the full declaration of a tool, and the judge's decision."""
    spec = entry.spec
    return {
        "name": entry.wire_name,
        "id": spec.qualified_id,
        "namespace": spec.namespace,
        "title": spec.title,
        "description": spec.description,
        "groups": list(spec.groups),
        "visible": decision.visible,
        "code": decision.code,
        "reason": decision.reason,
        "origin": spec.origin,
        "source": entry.source,
        "internal_only": spec.internal_only,
        "available": _availability(spec.available),
        "factory": spec.factory,
        "built": entry.builder is not None,
        "annotations": spec.definition().get("annotations", {}),
        "asks": entry.asks_because is not None,
        "four_eyes": spec.four_eyes,
        "consent": spec.consent if isinstance(spec.consent, str) else "decided by the arguments",
        "rate_limit": _rate_limit(spec),
        "timeout_s": spec.timeout_s,
        "max_concurrency": spec.max_concurrency,
        "max_result_bytes": spec.max_result_bytes,
        "task": spec.task,
        "repair": spec.repair,
        "aliases": dict(spec.aliases),
        "renamed_from": list(spec.renamed_from),
        "deprecated": spec.deprecated,
        "replaced_by": spec.replaced_by,
        "examples": list(spec.examples),
        "meta": dict(spec.meta),
        "input_schema": spec.input_schema,
        "output_schema": spec.output_schema,
    }


def first_line(text: str) -> str:
    """Return the first line of a description."""
    return text.strip().partition("\n")[0]


def hints(entry: ToolEntry) -> list[str]:
    """Return short notes for callers, a word or two each."""
    spec = entry.spec
    annotations = spec.annotations
    words = {
        "read-only": annotations.read_only,
        "destructive": annotations.destructive,
        "idempotent": annotations.idempotent,
        "open-world": annotations.open_world,
        "two people approve first" if spec.four_eyes else "asks first": (
            entry.asks_because is not None or callable(spec.consent)
        ),
    }
    notes = [word for word, is_so in words.items() if is_so]
    limit = _rate_limit(spec)
    return [*notes, limit] if limit else notes


def _rate_limit(spec: ToolSpec) -> str | None:
    limit = spec.rate_limit
    if limit is None:
        return None
    scope = "" if limit.scope == "caller" else f" per {limit.scope}"
    return f"{limit.max_calls}/{limit.window_s:g}s{scope}"


def _availability(available: object) -> object:
    """Return the condition as declared; a function by its name."""
    if callable(available):
        return getattr(available, "__qualname__", type(available).__name__)
    return available
