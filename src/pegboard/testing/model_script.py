"""Model script: what a scripted language model answers, turn by turn, and what it was asked."""

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


# ---- what is answered


class CallsTool(Struct, frozen=True):
    """The model calls a tool. Arguments that are a text are sent as they stand, so that they may be broken JSON."""

    name: str
    arguments: Mapping[str, JSONValue] | str = field(default_factory=dict[str, JSONValue])
    id: str | None = None

    @property
    def json_text(self) -> str:
        """The arguments as the providers send them: a text of JSON."""
        return self.arguments if isinstance(self.arguments, str) else orjson.dumps(self.arguments).decode()


class Pause(Struct, frozen=True):
    """The answer stands still for so many seconds."""

    seconds: float


class Hold:
    """The answer stands still until the test says `release()`; `reached` is set when it has come so far."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._is_released = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._lock = threading.Lock()

    def release(self) -> None:
        """Let every answer that waits here go on, and those that come later pass."""
        with self._lock:
            self._is_released = True
            waiting, self._waiting = self._waiting, []
        for loop, released in waiting:
            loop.call_soon_threadsafe(released.set)

    async def wait(self) -> None:
        """Wait as the server does."""
        released = asyncio.Event()
        with self._lock:
            if not self._is_released:
                self._waiting.append((asyncio.get_running_loop(), released))
            else:
                released.set()
        self.reached.set()
        await released.wait()


class RawBytes(Struct, frozen=True):
    """Bytes of your own amid the answer: damaged events, broken UTF-8, megabytes.

    Where the answer is not streamed, they are its whole body.
    """

    data: bytes


class Hangup(Struct, frozen=True):
    """The connection is closed before the answer is complete."""


class ModelFailure(Struct, frozen=True):
    """The provider refuses or breaks: a status of HTTP, or an error event when a part of the answer is out already."""

    status: int = 500
    message: str = "The scripted model fails here."
    retry_after_s: int | None = None


Part: TypeAlias = str | CallsTool | Pause | Hold | RawBytes | Hangup | ModelFailure


class ModelTurn(Struct, frozen=True, kw_only=True):
    """One answer of the model: its parts in order, where each text is one piece of a stream, and what it cost."""

    parts: tuple[Part, ...]
    input_tokens: int = 10
    output_tokens: int = 5
    stop: Stop = "end"

    @property
    def has_calls(self) -> bool:
        """Whether the model wants tools called."""
        return any(isinstance(part, CallsTool) for part in self.parts)

    @property
    def content(self) -> list[str | CallsTool]:
        """What is said: texts, those that follow each other as one, and calls of tools."""
        content: list[str | CallsTool] = []
        for part in self.parts:
            if isinstance(part, str) and content and isinstance(content[-1], str):
                content[-1] += part
            elif isinstance(part, str | CallsTool):
                content.append(part)
        return content

    @property
    def text(self) -> str:
        """All that is said in words."""
        return "".join(part for part in self.parts if isinstance(part, str))

    @property
    def failure(self) -> ModelFailure | None:
        """How it fails, if it does."""
        return next((part for part in self.parts if isinstance(part, ModelFailure)), None)


TurnLike: TypeAlias = ModelTurn | Part | Sequence[Part]


def turn_of(turn: TurnLike) -> ModelTurn:
    """Return a turn of what may stand for one: a text, a call, any other part, or several parts."""
    if isinstance(turn, ModelTurn):
        return turn
    if isinstance(turn, Sequence) and not isinstance(turn, str):
        return ModelTurn(parts=tuple(turn))
    return ModelTurn(parts=(turn,))


# ---- what was asked


class ToolOutcome(Struct, frozen=True, kw_only=True):
    """What a call of a tool came to, as the model is told."""

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
    """A request as the server read it. `body` and `headers` are as they came, names of headers in lower case."""

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
        """The last that the user said."""
        return next(
            (message.text for message in reversed(self.messages) if message.text and message.role == "user"), ""
        )

    @property
    def outcomes(self) -> tuple[ToolOutcome, ...]:
        """What the tools answered that the model called last."""
        return self.messages[-1].outcomes if self.messages else ()

    @property
    def turns(self) -> int:
        """How many turns the model had in this conversation."""
        return sum(message.role == "assistant" for message in self.messages)


Responder: TypeAlias = Callable[[ModelRequest], TurnLike]
Script: TypeAlias = Sequence[TurnLike] | Responder


class ScriptError(Exception):
    """The script has no answer to a request, or one that the provider cannot give."""


def by_conversation(*turns: TurnLike) -> Responder:
    """Return a script that each conversation goes through for itself, however many there are at once.

    Which turn comes next is seen from the history that the request carries.
    """

    def respond(request: ModelRequest) -> TurnLike:
        if request.turns >= len(turns):
            raise ScriptError(f"This conversation had all {len(turns)} turns of the script.")
        return turns[request.turns]

    return respond
