"""Rewriting: one tool's schema as a target takes it, the way back for arguments, and what is lost on the way."""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from pegboard.core.names import MAX_NAME_CHARS
from pegboard.model.json_types import JSON
from pegboard.providers.compile.nodes import Restore
from pegboard.providers.compile.refusals import schema_problems
from pegboard.providers.compile.schema_compiler import Compilation
from pegboard.providers.dialect import Loss, dialect


class Rewritten(NamedTuple):
    """A schema for one target. `restore` is `None` where arguments are the tool's own already."""

    schema: JSON
    losses: tuple[Loss, ...] = ()
    restore: Restore | None = None


def rewritten(target: str, schema: JSON) -> Rewritten:
    """Return the schema for a target. One that breaks none of its rules goes out as it was declared.

    Pure: equal schemas give equal bytes.

    Raises:
        DefinitionError: an unknown target.
    """
    rules = dialect(target)
    if next(schema_problems(rules, schema), None) is None:
        return Rewritten(schema)
    work = Compilation(schema, rules)
    node = work.whole()
    return Rewritten(node.schema, tuple(work.losses), node.restore)


def target_name(target: str, wire_name: str, qualified_id: str) -> str:
    """Return the name for a target: the wire name, or where the target cannot carry it, one with a hash tail.

    Raises:
        DefinitionError: an unknown target.
    """
    if re.fullmatch(dialect(target).names, wire_name):
        return wire_name
    tail = hashlib.sha256(qualified_id.encode()).hexdigest()[:8]
    return f"_{wire_name}"[: MAX_NAME_CHARS - 9] + f"_{tail}"
