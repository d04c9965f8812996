"""Tasks: create the task store of a config."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pegboard.config.config import Config
from pegboard.config.yaml.problems import Report
from pegboard.extras import needs_package
from pegboard.lazy import LazyModule
from pegboard.model.context import ToolContext
from pegboard.model.error import DefinitionError
from pegboard.model.host import Host
from pegboard.model.task import TaskCall

if TYPE_CHECKING:
    from pegboard.tasks import tasks as kept_tasks
else:
    kept_tasks = LazyModule("pegboard.tasks.tasks")

_PACKAGE = "dbos"


def tasks_of(config: Config, report: Report) -> kept_tasks.Tasks | None:
    """Return the task store of a config; `None` if there is none, or after reporting a problem."""
    declared = config.tasks
    if declared is None:
        return None
    at = declared.at / "store" if (declared.at / "store").exists else declared.at
    try:
        tasks = kept_tasks.Tasks(
            declared.value.place,
            ttl_s=declared.value.ttl_seconds,
            context_for=_context_for(config),
            base=config.path.absolute().parent,
        )
    except DefinitionError as error:
        report.add(at.problem(str(error)))
        return None
    if tasks.is_durable and find_spec(_PACKAGE) is None:
        report.add(at.problem(needs_package(_PACKAGE, "tasks")))
    return tasks


def _context_for(config: Config) -> Callable[[TaskCall], ToolContext]:
    """Return a function that makes the context of a task from the config's settings and the stored caller."""
    host = Host(settings=config.settings, secrets=config.secrets)
    return lambda call: ToolContext(caller=call.caller, host=host)
