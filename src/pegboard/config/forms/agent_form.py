"""Agent form: the keys of an agent's file, in our own format and in that of `astromesh/v1`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Discriminator, Field, Tag

from pegboard.config.forms.agent_words import KEY_VARIABLES
from pegboard.config.forms.model_form import ModelForm, key_variable
from pegboard.config.forms.value_types import (
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

    name: AgentName = Field(description="Its name: 1 to 32 of A-Z a-z 0-9 _ -, without `__`.")
    version: Maybe[Text] = Field(None, description="Its version, for people.")
    namespace: Maybe[Namespace] = Field(None, description="The namespace of its private tools. Default: its name.")


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
        None, description="The maximum number of model requests in one run; then it ends with the answer so far."
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
    """The limits of one run, including its sub-agents."""

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
    max_turns: PositiveWhole = Field(50, description="The number of runs that are remembered.")


class ConversationalForm(Form):
    """The memory of an `astromesh/v1` agent."""

    strategy: Literal["sliding_window"] = Field("sliding_window", description="The most recent turns are remembered.")
    max_turns: PositiveWhole = Field(50, description="The number of turns that are remembered.")


class AstromeshMemoryForm(Form):
    """The memory of an `astromesh/v1` agent."""

    conversational: Maybe[ConversationalForm] = Field(None, description="Its conversations are remembered.")


class IdentityForm(Form):
    """A description of the agent, for people and for callers."""

    display_name: Maybe[Text] = Field(None, description="Its name, for people.")
    description: Maybe[Text] = Field(None, description="The purpose of the agent.")


class _SpecForm(Form):
    description: Maybe[Text] = Field(None, description="The purpose of the agent, for people and for callers.")
    identity: Maybe[IdentityForm] = Field(None, description="A name and description for people.")
    prompts: Maybe[PromptsForm] = Field(None, description="Prompts for the model.")
    orchestration: Maybe[OrchestrationForm] = Field(None, description="How the agent runs.")
    tools: tuple[Any, ...] = Field(
        (), description="Its private tools, declared as under `tools:`; `{group: …}` and `{tool: …}` add shared ones."
    )
    permissions: Maybe[PermissionsForm] = Field(None, description="The tools it may call.")
    output_schema: Maybe[Mapping[Text, Anything]] = Field(
        None, description="A JSON Schema of type object for its answer."
    )
    secrets: Maybe[tuple[FilledText, ...]] = Field(None, description="The secrets of its caller that it may use.")
    budgets: Maybe[BudgetsForm] = Field(None, description="Limits of one run.")
    guardrails: Maybe[GuardrailsForm] = Field(None, description="Functions that check the query and the answer.")


class AgentSpecForm(_SpecForm):
    """The agent."""

    model: Maybe[ModelChoice] = Field(
        None,
        description="The model: `provider:name`, a name under `models:`, or a mapping. Default: `models.default`.",
    )
    memory: Maybe[MemoryForm] = Field(None, description="The memory of a session.")


class AstromeshSpecForm(_SpecForm):
    """The agent, in the format of `astromesh/v1`."""

    model: Maybe[AstromeshModelForm] = Field(None, description="Its model. Default: `default` of `models:`.")
    memory: Maybe[AstromeshMemoryForm] = Field(None, description="The memory of a session.")


class AgentFile(Form):
    """The file of an agent."""

    apiVersion: Literal["pegboard/v1"] = Field(description="pegboard/v1, or astromesh/v1.")  # noqa: N815 - the file's word
    kind: Literal["Agent"] = Field(description="Agent.")
    metadata: MetadataForm = Field(description="The name of the agent.")
    spec: AgentSpecForm = Field(description="The agent.")


class AstromeshFile(Form):
    """The file of an agent in the format of `astromesh/v1`."""

    apiVersion: Literal["astromesh/v1"] = Field(description="astromesh/v1.")  # noqa: N815 - the file's word
    kind: Literal["Agent"] = Field(description="Agent.")
    metadata: MetadataForm = Field(description="The name of the agent.")
    spec: AstromeshSpecForm = Field(description="The agent.")


class GroupForm(Form):
    """All tools of a group of the catalog."""

    group: FilledText = Field(description="The group.")


class SharedToolForm(Form):
    """One tool of the catalog."""

    tool: FilledText = Field(description="The tool, as `namespace.name`.")


AGENT_FILES = (AgentFile, AstromeshFile)
AGENT_SPECS = (AgentSpecForm, AstromeshSpecForm)
