"""Task: a call that outlives its request: who made it, what is kept of it, and how far it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from msgspec import Struct, field

from pegboard.model.caller import Caller
from pegboard.model.error import ToolError
from pegboard.model.json_types import JSON, JSONValue
from pegboard.model.result import ToolResult

TaskSupport = Literal["forbidden", "optional", "required"]
TaskState = Literal["working", "input_required", "completed", "failed", "cancelled"]
TERMINAL: Final = frozenset({"completed", "failed", "cancelled"})


class Agreement(NamedTuple):
    """What a person said yes to when a task was made: this tool, so defined, with these arguments."""

    tool: str
    definition_hash: str
    args_digest: str
    consent_id: str = ""


class TaskCall(Struct, frozen=True, kw_only=True):
    """What is kept of a call that became a task: nothing that is alive.

    `owner` is whose task it is, empty where nobody vouches for them: then it is whoever holds the id. `tool` is its
    qualified id, `definition_hash` what it was when the task was made. `door` is what the call came in by, `hops` the
    servers that it has passed.
    """

    task_id: str
    owner: str
    tool: str
    definition_hash: str
    arguments: JSON
    caller: Caller
    created_at: float
    ttl_s: float
    profile: str | None = None
    include: tuple[str, ...] | None = None
    internal: tuple[str, ...] = ()
    depth: int = 0
    request_id: str = ""
    door: str = ""
    hops: tuple[str, ...] = ()
    agreed: Agreement | None = None

    @property
    def expires_at(self) -> float:
        """When it is swept, in seconds since 1970."""
        return self.created_at + self.ttl_s


class Question(Struct, frozen=True, kw_only=True):
    """What a task asks the person behind it: words, and the form that the answer must have."""

    message: str
    form: JSON
    is_single: bool = False


class TaskRecord(Struct, frozen=True, kw_only=True):
    """A task as its owner sees it.

    `result` is there when it is completed, `error` when it failed: when it could not be run any further, while a tool
    that ran and failed is completed with an error for its result. `questions` are those that wait, by key.
    """

    task_id: str
    tool: str
    owner: str
    state: TaskState
    created_at: float
    updated_at: float
    ttl_s: float
    is_durable: bool
    message: str = ""
    fraction: float | None = None
    questions: Mapping[str, Question] = field(default_factory=dict[str, Question])
    result: ToolResult | None = None
    error: ToolError | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has ended, however that was; then nothing of it changes any more."""
        return self.state in TERMINAL


class Outcome(NamedTuple):
    """How the run of a task ended: with a result, or with what stopped it."""

    result: ToolResult | None = None
    error: ToolError | None = None


Answers = Mapping[str, JSONValue]
"""By the key of the question: `{"action": "accept" | "decline" | "cancel", "content": {…}}`, as MCP has it."""
