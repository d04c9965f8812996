"""Model server: a scripted language model on 127.0.0.1 that uses the real wire formats of the providers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast
from urllib.parse import parse_qsl

import orjson

from pegboard.lazy import LazyModule
from pegboard.model.json_types import JSON, is_object
from pegboard.testing.model_formats import gemini
from pegboard.testing.model_formats.anthropic_messages import AnthropicMessages
from pegboard.testing.model_formats.gemini import Gemini
from pegboard.testing.model_formats.openai_chat import OpenAIChat
from pegboard.testing.model_formats.openai_responses import OpenAIResponses
from pegboard.testing.model_formats.wire_format import HttpCall, RefusedRequestError, WireFormat
from pegboard.testing.model_script import (
    Hangup,
    Hold,
    ModelFailure,
    ModelRequest,
    ModelTurn,
    Pause,
    RawBytes,
    Responder,
    Script,
    ScriptError,
    TurnLike,
    turn_of,
)

if TYPE_CHECKING:
    from pegboard.testing import loopback
else:
    loopback = LazyModule("pegboard.testing.loopback")

Scripts: TypeAlias = Script | Mapping[str, Script]
Receive: TypeAlias = Callable[[], Any]
Send: TypeAlias = Callable[[dict[str, Any]], Any]

_PATIENCE_S = 30.0  # how long `wait_until` waits by default
_FORMATS: Mapping[str, WireFormat] = {
    "/chat/completions": OpenAIChat(),
    "/responses": OpenAIResponses(),
    "/messages": AnthropicMessages(),
    "/messages/count_tokens": AnthropicMessages(),
}
_GEMINI = Gemini()


class ModelServer:
    """Answers clients of OpenAI, Anthropic and Gemini with the turns of a script, and records each request.

    It listens at `url` within a `with` or `async with` block. It is also an ASGI app, for clients that accept one. An
    exception raised by a function of the script is raised again at the end of the block.

    Args:
        script: the turns of the model in the order of the requests; or a function from a request to a turn; or a
            mapping from the name of a model to either of these.
        api_key: the only accepted key; by default every key is accepted. A request without a key is refused.
        port: the port to listen on; by default any free one.
    """

    def __init__(self, script: Scripts, *, api_key: str | None = None, port: int = 0) -> None:
        self.requests: list[ModelRequest] = []
        self.left: list[ModelRequest] = []
        """The requests whose client disconnected before the answer was complete."""
        # The script under "" serves every model without a separate script.
        scripts = cast("Mapping[str, Script]", script if isinstance(script, Mapping) else {"": script})
        self._scripts = {name: _responder(each) for name, each in scripts.items()}
        self._api_key, self._numbers = api_key, count(1)
        self._changed = threading.Condition()
        self._port, self._server = port, None
        self._raised: Exception | None = None

    # ---- for the test

    @property
    def url(self) -> str:
        """The address: the base URL for clients of Anthropic and Gemini."""
        port = self._port if self._server is None else self._server.port
        return f"http://127.0.0.1:{port}"

    @property
    def openai_url(self) -> str:
        """The base URL for clients of OpenAI."""
        return f"{self.url}/v1"

    def wait_until(self, condition: Callable[[ModelServer], bool], *, timeout_s: float = _PATIENCE_S) -> None:
        """Return as soon as a condition holds, such as `lambda server: len(server.left) == 1`.

        Raises:
            TimeoutError: it does not hold after `timeout_s` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: condition(self), timeout_s):
                text = f"{len(self.requests)} requests, of which {len(self.left)} clients disconnected"
                raise TimeoutError(f"The condition did not hold within {timeout_s:g} s ({text}).")

    def __enter__(self) -> Self:
        server = loopback.LoopbackServer(self, self._port)
        server.start()
        self._server = server
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.stop()
        if self._raised is not None and exc is None:
            raise self._raised

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, exc, trace)

    # ---- for the client

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer a request; the interface of ASGI."""
        assert scope["type"] == "http"
        body = await _read(receive)
        wire_format, path = _format_of(scope["path"]), scope["path"]
        if wire_format is None or scope["method"] != "POST":
            text = f"The scripted model does not answer {scope['method']} {path}."
            await _send_json(send, _FORMATS["/chat/completions"].error(ModelFailure(404, text)), 404)
            return
        try:
            call = _call_of(scope, body)
            self._check_key(wire_format.key_of(call))
            request = wire_format.read(call)
        except RefusedRequestError as exc:
            await _fail(send, wire_format, ModelFailure(exc.status, str(exc)))
            return
        if path.endswith(("/count_tokens", ":countTokens")):
            await _send_json(send, {"input_tokens": len(body), "totalTokens": len(body)})
            return
        self._note(self.requests, request)
        try:
            turn = self._turn(request)
        except ScriptError as exc:
            await _fail(send, wire_format, ModelFailure(400, str(exc)))
            return
        except Exception as exc:  # noqa: BLE001 - the test's own code; raised again at the end of the block
            self._raised = self._raised or exc
            await _fail(send, wire_format, ModelFailure(400, f"The script raised {exc!r}."))
            return
        answer = _Answer(wire_format, request, turn, next(self._numbers), send)
        answering = asyncio.ensure_future(answer.give())
        leaving = asyncio.ensure_future(_client_left(receive))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                self._note(self.left, request)
            else:
                answering.result()
        finally:
            answering.cancel()
            leaving.cancel()

    def _note(self, requests: list[ModelRequest], request: ModelRequest) -> None:
        with self._changed:
            requests.append(request)
            self._changed.notify_all()

    def _check_key(self, key: str) -> None:
        if not key or self._api_key not in (None, key):
            raise RefusedRequestError("Incorrect API key provided." if key else "No API key provided.", 401)

    def _turn(self, request: ModelRequest) -> ModelTurn:
        responder = self._scripts.get(request.model, self._scripts.get(""))
        if responder is None:
            raise ScriptError(f"No script for the model {request.model!r}; there are {sorted(self._scripts)}.")
        return turn_of(responder(request))


class _Answer:
    """Sends one answer."""

    def __init__(
        self, wire_format: WireFormat, request: ModelRequest, turn: ModelTurn, number: int, send: Send
    ) -> None:
        self._format, self._request, self._turn, self._number = wire_format, request, turn, number
        self._send = send

    async def give(self) -> None:
        first = self._turn.parts[0] if self._turn.parts else None
        if isinstance(first, ModelFailure):
            await _fail(self._send, self._format, first)
        elif self._request.is_streamed:
            await self._stream()
        else:
            await self._whole()

    async def _whole(self) -> None:
        body: bytes | None = None
        is_cut = False
        for part in self._turn.parts:
            if isinstance(part, Pause | Hold):
                await _stand_still(part)
            elif isinstance(part, ModelFailure):
                await _fail(self._send, self._format, part)
                return
            elif isinstance(part, RawBytes):
                body = (body or b"") + part.data
            elif isinstance(part, Hangup):
                is_cut = True
        if body is None:
            try:
                body = orjson.dumps(self._format.whole(self._request, self._turn, self._number))
            except ScriptError as exc:
                await _fail(self._send, self._format, ModelFailure(400, str(exc)))
                return
        await _begin(self._send, 200, "application/json", length=len(body))
        sent = body[: len(body) // 2] if is_cut else body
        await self._send({"type": "http.response.body", "body": sent, "more_body": is_cut})

    async def _stream(self) -> None:
        await _begin(self._send, 200, "text/event-stream; charset=utf-8")
        for step in self._format.stream(self._request, self._turn, self._number):
            if isinstance(step, Pause | Hold):
                await _stand_still(step)
            elif isinstance(step, Hangup):
                return
            else:
                data = step.data if isinstance(step, RawBytes) else step
                await self._send({"type": "http.response.body", "body": data, "more_body": True})
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def _responder(script: Script) -> Responder:
    if callable(script):
        return script
    if isinstance(script, str):
        raise TypeError("The script is a single text; write a list of turns: `['…']`.")
    turns: Iterator[TurnLike] = iter(list(script))
    many, lock = len(script), threading.Lock()

    def respond(_: ModelRequest) -> TurnLike:
        with lock:
            turn = next(turns, None)
        if turn is None:
            raise ScriptError(f"The script has {many} turns, and this is one more request. Add a turn for it.")
        return turn

    return respond


def _format_of(path: str) -> WireFormat | None:
    if gemini.matched(path):
        return _GEMINI
    return next((each for end, each in _FORMATS.items() if path.endswith(end)), None)


def _call_of(scope: Mapping[str, Any], body: bytes) -> HttpCall:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise RefusedRequestError("We could not parse the JSON body of your request.") from None
    if not is_object(parsed):
        raise RefusedRequestError("The body must be a JSON object.")
    return HttpCall(
        path=scope["path"],
        query=dict(parse_qsl(scope["query_string"].decode("latin-1"))),
        headers={name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]},
        body=parsed,
    )


async def _read(receive: Receive) -> bytes:
    body = bytearray()
    while (message := await receive())["type"] == "http.request":
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    return bytes(body)


async def _client_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _stand_still(part: Pause | Hold) -> None:
    if isinstance(part, Pause):
        await asyncio.sleep(part.seconds)
    else:
        await part.wait()


async def _begin(send: Send, status: int, media_type: str, *, length: int | None = None, more: Any = ()) -> None:
    headers = [(b"content-type", media_type.encode()), (b"x-request-id", b"req_scripted"), *more]
    if length is not None:
        headers.append((b"content-length", str(length).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def _send_json(send: Send, content: JSON, status: int = 200, more: Any = ()) -> None:
    body = orjson.dumps(content)
    await _begin(send, status, "application/json", length=len(body), more=more)
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _fail(send: Send, wire_format: WireFormat, failure: ModelFailure) -> None:
    after = failure.retry_after_s
    more = () if after is None else ((b"retry-after", str(after).encode()),)
    await _send_json(send, wire_format.error(failure), failure.status, more)
