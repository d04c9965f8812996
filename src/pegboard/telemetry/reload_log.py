"""Reload log: one record for each reload that was refused, with all its problems."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pegboard.model.error import DefinitionError, PegboardError, Problem

log = logging.getLogger("pegboard")


def problems_of(error: PegboardError) -> tuple[Problem, ...]:
    """Return the faults of a config that was refused, or the error itself as the only one."""
    return error.problems if isinstance(error, DefinitionError) else (Problem(message=str(error)),)


def log_refusal(problems: Sequence[Problem], consequence: str) -> None:
    """Log that a reload was refused, why, and what runs instead."""
    count = f"{len(problems)} problem{'' if len(problems) == 1 else 's'}"
    listed = [{"where": problem.where, "path": problem.path, "message": problem.message} for problem in problems]
    log.error("config_reload_refused: %s. %s", count, consequence, extra={"fields": {"problems": listed}})
