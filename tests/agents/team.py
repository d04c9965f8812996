"""Team: agents whose models are played, each by a script of what it answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from pydantic_ai.messages import ModelMessage, ToolReturnPart, UserPromptPart
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from pegboard import Catalog, Event
from pegboard.model.agent import AgentSpec, ModelSpec

Turn = str | list[tuple[str, Any]]
"""What a model answers: a text, or calls of tools with their arguments."""
Script = Sequence[Turn] | Callable[[list[ModelMessage], AgentInfo], Turn]


def playing(scripts: Mapping[str, Script], *, seen: dict[str, list[Any]] | None = None) -> Callable[[ModelSpec], Model]:
    """Return a factory of models that play scripts by the name of the model; the last turn is repeated."""

    def make(spec: ModelSpec) -> Model:
        script = scripts[spec.name]

        async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
            if seen is not None:
                seen.setdefault(spec.name, []).append((messages, info))
            number = sum(message.kind == "response" for message in messages)
            turn = script(messages, info) if callable(script) else script[min(number, len(script) - 1)]
            if isinstance(turn, str):
                for word in turn.split(" "):
                    yield word if word == turn.split(" ")[0] else f" {word}"
                return
            for index, (name, arguments) in enumerate(turn):
                text = arguments if isinstance(arguments, str) else json.dumps(arguments)
                yield {index: DeltaToolCall(name=name, json_args=text, tool_call_id=f"{number}-{index}")}

        return FunctionModel(stream_function=stream, model_name=spec.name)

    return make


def agent(name: str, **fields: Any) -> AgentSpec:
    return AgentSpec(name=name, **{"model": ModelSpec(provider="openai_compatible", name=name), **fields})


def catalog_of(scripts: Mapping[str, Script], *, seen: dict[str, list[Any]] | None = None, **options: Any) -> Catalog:
    catalog = Catalog(**options)
    catalog.runtime.agents.make_model = playing(scripts, seen=seen)
    return catalog


def returned(messages: list[ModelMessage]) -> list[Any]:
    """Return what the tools gave back, as the model was told."""
    return [part.content for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]


def asked(messages: list[ModelMessage]) -> list[Any]:
    return [part.content for message in messages for part in message.parts if isinstance(part, UserPromptPart)]


class Recorder:
    """Hears every event."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __getattr__(self, name: str) -> Callable[[Event], None]:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return self.events.append

    def told(self) -> list[tuple[str, Any]]:
        return [(event.type.removeprefix("on_"), event.payload.get("tool", event.tool)) for event in self.events]
