"""Agent: the declaration of an agent, and of the language model that it runs on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal
from typing import Any, Literal, Protocol

from msgspec import Struct, field

from pegboard.model.error import ToolError
from pegboard.model.json_types import JSON, JSONValue
from pegboard.model.policy import OPEN_POLICY, Policy
from pegboard.model.secret import Secret
from pegboard.model.tool import ToolEntry

ModelProvider = Literal["openai", "anthropic", "google", "openai_compatible"]
RunStatus = Literal["completed", "failed", "cancelled", "timeout", "budget_exceeded"]


class ModelSpec(Struct, frozen=True, kw_only=True):
    """A language model: whose it is, what the provider calls it, and where it is reached.

    Without a `base_url` it is the provider's own endpoint, without an `api_key` its own variable of the environment.
    `parameters` are settings of each request, such as `temperature` and `max_tokens`. A request that an endpoint was
    too busy for, or that did not reach it, is sent again up to `max_retries` times.
    """

    provider: ModelProvider
    name: str
    base_url: str | None = None
    api_key: Secret | None = None
    parameters: Mapping[str, JSONValue] = field(default_factory=dict[str, JSONValue])
    timeout_s: float = 60.0
    max_retries: int = 2


class AgentBudgets(Struct, frozen=True, kw_only=True):
    """How much one run of an agent may use, with everything that its sub-agents use; `None` is without a limit."""

    requests: int | None = None
    tool_calls: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    usd: Decimal | None = None


class AgentMemory(Struct, frozen=True, kw_only=True):
    """What is remembered of a session: its conversation, and how many turns of it."""

    conversation: bool = True
    max_turns: int = 50


class Guardrail(Struct, frozen=True, kw_only=True):
    """A function of the operator that judges the query or the answer of a run; it says allow, deny or replace."""

    run: Callable[..., Any]
    name: str


class AgentSpec(Struct, frozen=True, kw_only=True):
    """The declaration of one agent, without its private tools.

    `groups` and `shared` are what it takes of the catalog: whole groups, and tools by qualified id. `policy` is its
    permissions. `secrets` names those of its caller's that reach it; `None` is none for a sub-agent, and those of the
    context for one that a host runs. `prompt` is a template that sees the context of the run.
    """

    name: str
    model: ModelSpec
    namespace: str = ""
    version: str = ""
    description: str = ""
    prompt: str = ""
    max_iterations: int | None = None
    timeout_s: float | None = None
    groups: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    policy: Policy = OPEN_POLICY
    secrets: tuple[str, ...] | None = None
    output_schema: JSON | None = None
    budgets: AgentBudgets = AgentBudgets()
    memory: AgentMemory = AgentMemory()
    input_guardrails: tuple[Guardrail, ...] = ()
    output_guardrails: tuple[Guardrail, ...] = ()
    origin: str = ""


class AgentEntry(Struct, frozen=True, kw_only=True):
    """One agent: its declaration, its private tools, and the names of the sources that are its alone."""

    spec: AgentSpec
    tools: tuple[ToolEntry, ...] = ()
    sources: tuple[str, ...] = ()


class AgentUsage(Struct, frozen=True, kw_only=True):
    """What a run used, its sub-agents included; `usd` is known where a budget asked for prices."""

    requests: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: Decimal | None = None


class AgentResult(Struct, frozen=True, kw_only=True):
    """How a run ended, exactly once. `output` is the answer: a text, or JSON where the agent has an `output_schema`.

    `stopped_reason` says of a completed run why the answer is only what there was so far. `error` is set unless the
    run completed.
    """

    agent: str
    status: RunStatus
    output: JSONValue = None
    stopped_reason: str | None = None
    error: ToolError | None = None
    usage: AgentUsage = AgentUsage()
    run_id: str = ""


class AgentCall(Protocol):
    """A running call whose tool is made of an agent that nobody else has; `CallContext.call` is one."""

    def run_own_agent(self, agent: AgentEntry, query: str, *, on_text: Callable[[str], None]) -> Awaitable[AgentResult]:
        """Run it as a part of the call, and return how it ended; `on_text` takes what it says as it comes."""
        ...
