"""Tasks form: the engine that runs tasks, their store, and how long they are kept."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from pegboard.config.forms.value_types import ConcealedText, Form, Maybe, PositiveNumber, definition_error
from pegboard.model.secret import Secret
from pegboard.tasks.limits import TASK_TTL_S

_IN_MEMORY = "memory"
_OF_DBOS = "sqlite:./tasks.db"


class TasksForm(Form):
    """Tasks are calls that continue after their request has ended."""

    engine: Maybe[Literal["inline", "dbos"]] = Field(
        None,
        description="`inline` runs tasks in this process and loses them when it ends. `dbos` uses a database, so that "
        "tasks survive a crash. Default: the engine that fits `store`.",
    )
    store: Maybe[ConcealedText] = Field(
        None,
        description="Where tasks are stored: `memory`, until the process ends; sqlite:FILE, relative to this file; or "
        "postgresql://… for workers on several machines. Default: memory, or "
        f"{_OF_DBOS} with dbos.",
    )
    ttl_seconds: PositiveNumber = Field(TASK_TTL_S, description="How long a task is kept after its start, in seconds.")

    @model_validator(mode="after")
    def _fits_its_engine(self) -> TasksForm:
        store = self.store.reveal() if isinstance(self.store, Secret) else self.store
        if self.engine == "inline" and store not in (None, _IN_MEMORY):
            raise definition_error("`engine: inline` keeps tasks in memory: remove `store`, or write `engine: dbos`")
        if self.engine == "dbos" and store == _IN_MEMORY:
            raise definition_error("`engine: dbos` needs a database: `store: sqlite:FILE` or `store: postgresql://…`")
        return self

    @property
    def place(self) -> str | Secret:
        """The place of the task store, or the default."""
        return self.store or (_OF_DBOS if self.engine == "dbos" else _IN_MEMORY)
