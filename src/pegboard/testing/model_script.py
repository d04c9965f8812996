"""Model script: the turns that a scripted language model answers with, and the requests that it receives."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

import orjson
from msgspec import Struct, field

from pegboard.model.json_types import JSON, JSONValue
from pegboard.model.record import CarriesCredentials

ModelApi = Literal["openai", "openai_responses", "anthropic", "google"]
Stop = Literal["end", "length", "filtered"]


# ---- answers


class CallsTool(Struct, frozen=True):
    """The model calls a tool. Arguments given as a string are sent unchanged, so that a test can send invalid JSON."""

    name: str
    arguments: Mapping[str, JSONValue] | str = field(default_factory=dict[str, JSONValue])
    id: str | None = None

    @property
    def json_text(self) -> str:
        """The arguments as a JSON string, the form in which providers send them."""
        return self.arguments if isinstance(self.arguments, str) else orjson.dumps(self.arguments).decode()


class Pause(Struct, frozen=True):
    """The answer pauses for this many seconds."""

    seconds: float


class Hold:
    """The answer waits here until the test calls `release()`; `reached` is set as soon as it waits."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._is_released = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._lock = threading.Lock()

    def release(self) -> None:
        """Continue every answer that waits here; later answers do not wait."""
        with self._lock:
            self._is_released = True
            waiting, self._waiting = self._waiting, []
        for loop, released in waiting:
            loop.call_soon_threadsafe(released.set)

    async def wait(self) -> None:
        """Wait for `release`; called by the server."""
        released = asyncio.Event()
        with self._lock:
            if not self._is_released:
                self._waiting.append((asyncio.get_running_loop(), released))
            else:
                released.set()
        self.reached.set()
        await released.wait()


class RawBytes(Struct, frozen=True):
    """Bytes to send as part of the answer, such as damaged events, invalid UTF-8 or megabytes of text.

    If the answer is not streamed, they are its whole body.
    """

    data: bytes


class Hangup(Struct, frozen=True):
    """The connection is closed before the answer is complete."""


class ModelFailure(Struct, frozen=True):
    """The provider fails: with an HTTP status, or with an error event if a part of the answer was already sent."""

    status: int = 500
    message: str = "The scripted model fails here."
    retry_after_s: int | None = None


Part: TypeAlias = str | CallsTool | Pause | Hold | RawBytes | Hangup | ModelFailure


class ModelTurn(Struct, frozen=True, kw_only=True):
    """One answer of the model: its parts in order, each text being one piece of a stream, and its token usage."""

    parts: tuple[Part, ...]
    input_tokens: int = 10
    output_tokens: int = 5
    stop: Stop = "end"

    @property
    def has_calls(self) -> bool:
        """Whether the model calls tools."""
        return any(isinstance(part, CallsTool) for part in self.parts)

    @property
    def content(self) -> list[str | CallsTool]:
        """The texts and tool calls of the answer; consecutive texts are joined."""
        content: list[str | CallsTool] = []
        for part in self.parts:
            if isinstance(part, str) and content and isinstance(content[-1], str):
                content[-1] += part
            elif isinstance(part, str | CallsTool):
                content.append(part)
        return content

    @property
    def text(self) -> str:
        """All texts of the answer, joined."""
        return "".join(part for part in self.parts if isinstance(part, str))

    @property
    def failure(self) -> ModelFailure | None:
        """The failure in this answer, if there is one."""
        return next((part for part in self.parts if isinstance(part, ModelFailure)), None)


TurnLike: TypeAlias = ModelTurn | Part | Sequence[Part]


def turn_of(turn: TurnLike) -> ModelTurn:
    """Return the turn for its short forms: a text, a call, another part, or a list of parts."""
    if isinstance(turn, ModelTurn):
        return turn
    if isinstance(turn, Sequence) and not isinstance(turn, str):
        return ModelTurn(parts=tuple(turn))
    return ModelTurn(parts=(turn,))


# ---- requests


class ToolOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of a tool call, as sent to the model."""

    call_id: str
    text: str
    name: str = ""
    is_error: bool = False


class ModelMessage(Struct, frozen=True, kw_only=True):
    """A message of the conversation, the same for every provider."""

    role: Literal["user", "assistant"]
    text: str = ""
    calls: tuple[CallsTool, ...] = ()
    outcomes: tuple[ToolOutcome, ...] = ()


class ModelRequest(CarriesCredentials, frozen=True, kw_only=True):
    """A request to the model. `body` and `headers` are as they were sent, with header names in lower case."""

    api: ModelApi
    model: str
    is_streamed: bool
    system: str
    messages: tuple[ModelMessage, ...]
    tools: tuple[str, ...]
    body: JSON
    headers: Mapping[str, str]
    path: str

    @property
    def prompt(self) -> str:
        """The text of the last user message that has one."""
        return next(
            (message.text for message in reversed(self.messages) if message.text and message.role == "user"), ""
        )

    @property
    def outcomes(self) -> tuple[ToolOutcome, ...]:
        """The outcomes of the last tool calls of the model."""
        return self.messages[-1].outcomes if self.messages else ()

    @property
    def turns(self) -> int:
        """The number of turns of the model in this conversation so far."""
        return sum(message.role == "assistant" for message in self.messages)


Responder: TypeAlias = Callable[[ModelRequest], TurnLike]
Script: TypeAlias = Sequence[TurnLike] | Responder


class ScriptError(Exception):
    """The script has no answer to a request, or an answer that the provider's format cannot express."""


def by_conversation(*turns: TurnLike) -> Responder:
    """Return a script that every conversation follows from its first turn, also if several run at once.

    The history in the request shows which turn is next.
    """

    def respond(request: ModelRequest) -> TurnLike:
        if request.turns >= len(turns):
            raise ScriptError(f"This conversation has used all {len(turns)} turns of the script.")
        return turns[request.turns]

    return respond
