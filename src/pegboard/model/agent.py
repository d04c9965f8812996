"""Agent: the declaration of an agent and of the language model it uses."""

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
RUN_PREFIX = "agent."
"""Before the name of an agent whose run no call of a tool surrounds, in budgets and in the audit."""
RunStatus = Literal["completed", "failed", "cancelled", "timeout", "budget_exceeded"]


class ModelSpec(Struct, frozen=True, kw_only=True):
    """A language model: its provider, its name there and its endpoint.

    Without `base_url` the provider's default endpoint is used; without `api_key`, the provider's environment variable.
    `parameters` are sent with each request, such as `temperature` and `max_tokens`. A request is retried up to
    `max_retries` times if the endpoint is overloaded or unreachable.
    """

    provider: ModelProvider
    name: str
    base_url: str | None = None
    api_key: Secret | None = None
    parameters: Mapping[str, JSONValue] = field(default_factory=dict[str, JSONValue])
    timeout_s: float = 60.0
    max_retries: int = 2


class AgentBudgets(Struct, frozen=True, kw_only=True):
    """The most one agent run may use, including its sub-agents; `None` means unlimited."""

    requests: int | None = None
    tool_calls: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    usd: Decimal | None = None


class AgentMemory(Struct, frozen=True, kw_only=True):
    """Memory settings of a session: whether to keep the conversation, and how many turns."""

    conversation: bool = True
    max_turns: int = 50


class Guardrail(Struct, frozen=True, kw_only=True):
    """An operator's function that checks the query or the answer of a run; it allows, denies or replaces it."""

    run: Callable[..., Any]
    name: str


class AgentSpec(Struct, frozen=True, kw_only=True):
    """The declaration of one agent, without its private tools.

    `groups` and `shared` select tools from the catalog, by group and by qualified id. `policy` limits them further.
    `secrets` lists the caller's secrets that the agent receives. With `None`, a sub-agent receives no secrets, and an
    agent that a host runs receives all secrets of the context. `prompt` is a template, rendered with the context of
    the run.
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
    """One agent: its declaration, its private tools, and the names of its private sources."""

    spec: AgentSpec
    tools: tuple[ToolEntry, ...] = ()
    sources: tuple[str, ...] = ()


class AgentUsage(Struct, frozen=True, kw_only=True):
    """The usage of a run, including its sub-agents; `usd` is set if a budget asked for prices."""

    requests: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: Decimal | None = None


class AgentResult(Struct, frozen=True, kw_only=True):
    """The single result of a run. `output` is text, or JSON if the agent has an `output_schema`.

    `stopped_reason` explains why a completed run returned only a partial answer. `error` is set unless the run
    completed. `away_sources` are sources of the agent's tools that were not up, each with the reason. The agent ran
    without them.
    `missing_tools` are the tools and groups that the agent declares and the run did not have, with the reason.
    """

    agent: str
    status: RunStatus
    output: JSONValue = None
    stopped_reason: str | None = None
    error: ToolError | None = None
    usage: AgentUsage = AgentUsage()
    run_id: str = ""
    away_sources: tuple[str, ...] = ()
    missing_tools: tuple[str, ...] = ()


class AgentCall(Protocol):
    """A running call whose tool wraps a private agent; `CallContext.call` is one."""

    def load_model(self, model: ModelSpec) -> Awaitable[None]:
        """Import the packages that a run of an agent with this model needs."""
        ...

    def run_own_agent(self, agent: AgentEntry, query: str, *, on_text: Callable[[str], None]) -> Awaitable[AgentResult]:
        """Run the agent as part of the call and return its result; `on_text` receives its text as it streams."""
        ...
