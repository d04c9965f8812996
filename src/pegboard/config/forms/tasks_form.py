"""Tasks form: where tasks are kept, and how long."""

from __future__ import annotations

from pydantic import Field

from pegboard.config.forms.value_types import ConcealedText, Form, PositiveNumber
from pegboard.model.bounds import TASK_TTL_S


class TasksForm(Form):
    """The calls that outlive their request."""

    store: ConcealedText = Field(
        "memory",
        description="Where tasks are kept: memory, until the process ends; sqlite:FILE beside this file, or "
        "postgresql://… for workers on several machines, where they survive it.",
    )
    ttl_s: PositiveNumber = Field(
        TASK_TTL_S, description="How many seconds a task is kept, from its beginning; then it is forgotten."
    )
