"""Agent form: the keys of an agent's file, in our own format and in that of `astromesh/v1`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Discriminator, Field, Tag

from pegboard.config.forms.agent_words import KEY_VARIABLES
from pegboard.config.forms.model_form import ModelForm, key_variable
from pegboard.config.forms.value_types import (
    EXTENSIBLE,
    MAPPING,
    TEXT,
    Anything,
    ConcealedText,
    Count,
    FilledText,
    Flag,
    Form,
    Maybe,
    Namespace,
    PositiveNumber,
    PositiveWhole,
    Reference,
    Text,
    Variable,
    definition_error,
)

AGENT_NAME_CHARS = 32  # characters of an agent's name, which may be a prefix of tool names

KIND = "Agent"
_NAME = re.compile(r"[A-Za-z0-9_-]+")


def _agent_name(value: str) -> str:
    if len(value) > AGENT_NAME_CHARS or "__" in value or not _NAME.fullmatch(value):
        raise definition_error(f"{value!r}: use 1 to {AGENT_NAME_CHARS} of A-Z a-z 0-9 _ -, without '__'")
    return value


AgentName: TypeAlias = Annotated[Text, AfterValidator(_agent_name)]


class MetadataForm(Form):
    """The name of the agent."""

    name: AgentName = Field(
        description="The name of the agent: 1 to 32 letters A-Z a-z, digits, `_` and `-`, without `__`."
    )
    version: Maybe[Text] = Field(None, description="The version of the agent, as a note for people.")
    namespace: Maybe[Namespace] = Field(
        None, description="The namespace of the agent's private tools. Default: the name of the agent."
    )


class PrimaryForm(Form):
    """The first model of an `astromesh/v1` agent."""

    provider: Literal[
        "openai", "anthropic", "google", "gemini", "openai_compatible", "openai_compat", "ollama", "vllm", "llamacpp"
    ] = Field(description="The provider of the model.")
    model: FilledText = Field(description="The provider's name for the model.")
    endpoint: Maybe[FilledText] = Field(None, description="The URL of the endpoint.")
    api_key: Maybe[ConcealedText] = Field(None, description="The API key.")
    api_key_env: Maybe[Variable] = Field(None, description="The environment variable with the API key.")
    parameters: Mapping[Text, Anything] = Field(
        default_factory=dict[str, Any], description="Settings for each request, such as temperature and max_tokens."
    )


class AstromeshModelForm(Form):
    """The models of an `astromesh/v1` agent; only the first is used."""

    primary: PrimaryForm = Field(description="The model.")


ModelChoice: TypeAlias = Annotated[
    Annotated[ModelForm, Tag(MAPPING)] | Annotated[FilledText, Tag(TEXT)],
    Discriminator(lambda value: MAPPING if isinstance(value, dict) else TEXT),
]


def agent_key_variable(model: ModelForm | AstromeshModelForm | str | None) -> str | None:
    """Return the environment variable of the API key of an agent's model; `None` if it has a key or needs none."""
    if not isinstance(model, AstromeshModelForm):
        return key_variable(model)
    primary = model.primary
    if primary.api_key_env is not None:
        return primary.api_key_env
    needs_key = primary.api_key is None and primary.endpoint is None
    return KEY_VARIABLES.get(primary.provider) if needs_key else None


class PromptsForm(Form):
    """The system prompt."""

    system: Text = Field("", description="The system prompt, a template with the context: `{{ context.company }}`.")


class OrchestrationForm(Form):
    """How the agent runs."""

    pattern: Literal["react"] = Field("react", description="The model calls tools until it answers.")
    max_iterations: Maybe[PositiveWhole] = Field(
        None,
        description="The maximum number of model requests in one run, 50 if not set. After that, the run ends with the "
        "answer so far; with `budgets: {requests}`, it ends with an error.",
    )
    timeout_seconds: Maybe[PositiveNumber] = Field(None, description="The time limit of one run, in seconds.")


class PermissionsForm(Form):
    """Globs over the tools that the agent may call. With both lists, denied tools are removed from the allowed ones."""

    allowed_actions: Maybe[tuple[FilledText, ...]] = Field(
        None, description="Globs over tool names: only these may be called."
    )
    denied_actions: tuple[FilledText, ...] = Field((), description="Globs over tool names: these may not be called.")


class GuardrailsForm(Form):
    """Functions that check the input and output of a run."""

    input: tuple[Reference, ...] = Field(
        (), description="Functions that check the query, each as `python:module:function`."
    )
    output: tuple[Reference, ...] = Field(
        (), description="Functions that check the answer, each as `python:module:function`."
    )


class BudgetsForm(Form):
    """The limits of one run, including its sub-agents. When one is used up, the run ends with `budget_exceeded`."""

    requests: Maybe[PositiveWhole] = Field(None, description="The maximum number of model requests.")
    tool_calls: Maybe[Count] = Field(None, description="The maximum number of tool calls.")
    input_tokens: Maybe[PositiveWhole] = Field(None, description="The maximum number of input tokens.")
    output_tokens: Maybe[PositiveWhole] = Field(None, description="The maximum number of output tokens.")
    total_tokens: Maybe[PositiveWhole] = Field(None, description="The maximum number of input and output tokens.")
    usd: Maybe[PositiveNumber] = Field(
        None, description="The maximum cost in dollars; each model of the run needs a known price."
    )


class MemoryForm(Form):
    """The memory of a session."""

    conversation: Flag = Field(True, description="Whether a run continues the conversation of its session.")
    max_turns: PositiveWhole = Field(
        50, description="The maximum number of earlier runs of the session that are remembered."
    )


class ConversationalForm(Form):
    """The memory of an `astromesh/v1` agent."""

    strategy: Literal["sliding_window"] = Field(
        "sliding_window", description="Always `sliding_window`: the most recent turns are remembered."
    )
    max_turns: PositiveWhole = Field(50, description="The maximum number of earlier turns that are remembered.")


class AstromeshMemoryForm(Form):
    """The memory of an `astromesh/v1` agent."""

    conversational: Maybe[ConversationalForm] = Field(
        None, description="Settings for the conversations that the agent remembers."
    )


class IdentityForm(Form):
    """A display name and a description of the agent."""

    display_name: Maybe[Text] = Field(None, description="The name that people see.")
    description: Maybe[Text] = Field(None, description="The purpose of the agent, if the spec has no `description`.")


class _SpecForm(Form):
    description: Maybe[Text] = Field(None, description="The purpose of the agent, shown to people and to callers.")
    identity: Maybe[IdentityForm] = Field(
        None, description="A display name, and a description that is used if there is no `description`."
    )
    prompts: Maybe[PromptsForm] = Field(None, description="The system prompt.")
    orchestration: Maybe[OrchestrationForm] = Field(None, description="How the agent runs.")
    tools: tuple[Any, ...] = Field(
        (),
        description="The agent's private tools, written like tools in the config. `{group: …}` and `{tool: …}` add "
        "shared tools.",
    )
    permissions: Maybe[PermissionsForm] = Field(None, description="Globs over the tools that the agent may call.")
    output_schema: Maybe[Mapping[Text, Anything]] = Field(
        None, description="A JSON Schema of type object for the agent's answer."
    )
    secrets: Maybe[tuple[FilledText, ...]] = Field(
        None, description="The names of the caller's secrets that the agent may use."
    )
    budgets: Maybe[BudgetsForm] = Field(None, description="Limits of one run.")
    guardrails: Maybe[GuardrailsForm] = Field(None, description="Functions that check the query and the answer.")


class AgentSpecForm(_SpecForm):
    """The settings of an agent."""

    model: Maybe[ModelChoice] = Field(
        None,
        description="The model: `provider:name`, a name under `models:` in the config, or a mapping. Default: "
        "`models.default`.",
    )
    memory: Maybe[MemoryForm] = Field(None, description="The memory of a session.")


class AstromeshSpecForm(_SpecForm):
    """The settings of an agent in the format of `astromesh/v1`."""

    model: Maybe[AstromeshModelForm] = Field(None, description="Its model. Default: `models.default` of the config.")
    memory: Maybe[AstromeshMemoryForm] = Field(None, description="The memory of a session.")


class AgentFile(Form):
    """The file that defines one agent."""

    model_config = EXTENSIBLE

    apiVersion: Literal["pegboard/v1"] = Field(  # noqa: N815 - the file's word
        description="Always `pegboard/v1`. Files of `astromesh/v1` have their own keys, below."
    )
    kind: Literal["Agent"] = Field(description="Always `Agent`.")
    metadata: MetadataForm = Field(description="The name, version and namespace of the agent.")
    spec: AgentSpecForm = Field(description="The settings of the agent.")


class AstromeshFile(Form):
    """An agent file written for Astromesh, another agent runtime."""

    model_config = EXTENSIBLE

    apiVersion: Literal["astromesh/v1"] = Field(description="Always `astromesh/v1`.")  # noqa: N815 - the file's word
    kind: Literal["Agent"] = Field(description="Always `Agent`.")
    metadata: MetadataForm = Field(description="The name, version and namespace of the agent.")
    spec: AstromeshSpecForm = Field(description="The settings of the agent.")


class GroupForm(Form):
    """All tools of a group of the catalog."""

    group: FilledText = Field(description="The group.")


class SharedToolForm(Form):
    """One tool of the catalog."""

    tool: FilledText = Field(description="The tool, as `namespace.name`.")


AGENT_FILES = (AgentFile, AstromeshFile)
AGENT_SPECS = (AgentSpecForm, AstromeshSpecForm)
