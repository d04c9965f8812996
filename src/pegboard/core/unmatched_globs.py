"""Unmatched globs: find the entries of a policy that mean no tool."""

from __future__ import annotations

from collections.abc import Sequence

from pegboard.core.judge import applies, layers
from pegboard.core.names import nearest
from pegboard.core.snapshot import Snapshot
from pegboard.model.policy import Policy
from pegboard.model.tool import ToolEntry

BESIDE_TOOLS = ("resource", "prompt", "completion")
"""The namespaces of resources, prompts and completions: globs over these match no tool, so they are not reported."""


def unmatched(
    policy: Policy, snapshot: Snapshot, mirrored: Sequence[ToolEntry], namespaces: frozenset[str]
) -> tuple[list[str], list[str]]:
    """Return the globs that match no tool: those whose namespace is not declared, in words (errors), and the rest."""
    errors: list[str] = []
    warnings: list[str] = []
    for layer in layers(policy):
        for glob in (*layer.deny, *(layer.allow or ())):
            if glob in namespaces or snapshot.is_meant_by(glob) or any(applies(glob, entry) for entry in mirrored):
                continue
            namespace = _namespace_of(glob)
            if namespace in BESIDE_TOOLS or glob in BESIDE_TOOLS:
                continue
            if namespace is None or namespace in namespaces:
                warnings.append(glob)
            else:
                errors.append(
                    f"{glob!r} names no declared namespace.{nearest(namespace, namespaces, label='Namespaces')}"
                )
    return errors, warnings


def _namespace_of(glob: str) -> str | None:
    """Return the namespace that a glob spells out, if any: `fs__*` and `fs.read` name `fs`."""
    # `prompt.mail__answer` names `prompt`.
    heads = [head for mark in ("__", ".") if (head := glob.partition(mark)[0]) not in ("", glob)]
    namespace = min(heads, key=len, default="")
    return None if not namespace or set(namespace) & set("*?[") else namespace
