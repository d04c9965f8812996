"""Task: a call that outlives its request: its stored form, its state and its questions."""

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
    """The approval for a task: for the tool with this definition and these arguments."""

    tool: str
    definition_hash: str
    args_digest: str
    consent_id: str = ""


class TaskCall(Struct, frozen=True, kw_only=True):
    """The stored form of a call that became a task; it holds no live objects.

    `owner` is the owner of the task; without one, anyone who has the id owns it. `tool` is a qualified id,
    `definition_hash` the definition when the task was made. `door` is the transport of the call, `hops` the servers
    that it has passed.
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
        """When the task is deleted, in seconds since 1970."""
        return self.created_at + self.ttl_s


class Question(Struct, frozen=True, kw_only=True):
    """A question of a task to its person: the text, and the schema of the answer."""

    message: str
    form: JSON
    is_single: bool = False


class TaskRecord(Struct, frozen=True, kw_only=True):
    """A task as its owner sees it.

    `result` is set if the task completed, `error` if it failed. A task fails if it could not continue; a tool that ran
    and failed completes its task with an error as its result. `questions` are the open questions, by key.
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
    worker: str = ""
    """The worker that runs it, or ran it last; empty if there is only one, or if none has begun it."""

    @property
    def is_over(self) -> bool:
        """Whether the task has ended; it does not change after that."""
        return self.state in TERMINAL


class Outcome(NamedTuple):
    """The outcome of a task's run: a result, or the error that stopped it."""

    result: ToolResult | None = None
    error: ToolError | None = None


Answers = Mapping[str, JSONValue]
"""By question key: `{"action": "accept" | "decline" | "cancel", "content": {…}}`, as in MCP."""
