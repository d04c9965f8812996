"""To come: the kinds whose keys are known and whose piece is missing; they are checked, and refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

from pydantic import BeforeValidator, Field, Strict

from pegboard.config.environment import typed
from pegboard.config.kinds.described import DescribedForm
from pegboard.config.kinds.tool_form import ToolForm
from pegboard.config.value_types import FilledText, Form, Maybe, PositiveWhole

Share: TypeAlias = Annotated[float, Strict(), Field(ge=0, le=1), BeforeValidator(typed)]


class CollectionForm(Form):
    """What is searched, and what counts as found."""

    collection: FilledText = Field(description="The collection of documents.")
    top_k: PositiveWhole = Field(5, description="How many passages are given at most.")
    score_threshold: Share = Field(0.0, description="What scores lower, of 0 to 1, is left out.")


class RagForm(ToolForm):
    """A tool that searches a collection of documents."""

    rag: CollectionForm = Field(description="The collection.")


class AgentForm(DescribedForm):
    """A tool that is another agent."""

    agent: FilledText = Field(description="The agent, by its name.")
    context_transform: Maybe[FilledText] = Field(
        None, description="A template that makes the agent's context of the arguments."
    )


TO_COME: Final[Mapping[str, type[ToolForm]]] = {"rag": RagForm, "agent": AgentForm}
