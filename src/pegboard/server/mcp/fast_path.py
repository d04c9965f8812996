"""FastPath: answer plain requests of 2026-07-28 with ready bytes. It only ever accepts; the rest is the SDK's.

A request that differs in anything from the plain case (an unknown parameter, input responses, a tool with
mirrored headers …) is left to the SDK untouched, so every refusal on the wire is the SDK's own.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from pegboard.core.bounded_cache import BoundedCache
from pegboard.model.bounds import KIB
from pegboard.model.hops import HOPS_KEY
from pegboard.model.json_types import JSON, JSONValue
from pegboard.server.gateway import Gateway, RpcError
from pegboard.server.mcp.asking.input_required import InputRequiredChannel, NotifyingChannel
from pegboard.server.mcp.asking.notifications import LEVELS, MessageOutlet
from pegboard.server.mcp.handlers.lists import Lists
from pegboard.server.mcp.protocol.capabilities import SERVER_KEY, VERSION, discovery, server_info
from pegboard.server.mcp.protocol.jsonrpc import as_object, json_bytes
from pegboard.server.principal import Principal

META_REMEMBERED = KIB  # forms of `_meta` that were accepted
META_REMEMBERED_BYTES = 4_096  # of such a form

log = logging.getLogger("pegboard.serve")
INTERNAL_ERROR = -32603
_RESERVED = "io.modelcontextprotocol/"
VERSION_KEY = _RESERVED + "protocolVersion"
_CAPABILITIES_KEY = _RESERVED + "clientCapabilities"
_CLIENT_KEY = _RESERVED + "clientInfo"
_LEVEL_KEY = _RESERVED + "logLevel"
PROGRESS_KEY = "progressToken"
_PLAIN_META = frozenset((VERSION_KEY, _CAPABILITIES_KEY, _CLIENT_KEY, "traceparent", "tracestate", "baggage"))
_KNOWN_META = frozenset((*_PLAIN_META, PROGRESS_KEY, _LEVEL_KEY))
_NOT_FOREIGN = (_RESERVED, "io_modelcontextprotocol", "progress_token")
"""How keys begin that may mean something to the SDK, and that we do not read."""
_PLAIN_CAPABILITIES = {"elicitation": frozenset(("form", "url")), "sampling": frozenset(("context", "tools"))}
_CLIENT_WORDS = frozenset(("name", "version", "title", "description", "websiteUrl"))
_BODY_KEYS = frozenset(("jsonrpc", "id", "method", "params"))
_CALL_KEYS = frozenset(("name", "arguments", "_meta"))

Seal = Callable[[JSON, Mapping[str, Any], Principal], Awaitable[JSON]]
"""(result that asks for input, params of the request, whose) -> the same with its state sealed"""


class Answer(NamedTuple):
    """The bytes that answer a request, in parts to be joined once; `code` is that of a JSON-RPC error, or 0."""

    parts: tuple[bytes, ...]
    code: int = 0

    @property
    def status(self) -> int:
        """The HTTP status, as the SDK has it for the same code."""
        return 200 if self.code in (0, INTERNAL_ERROR) else 400

    def message(self, request_id: bytes) -> bytes:
        """Return the whole JSON-RPC message."""
        member = b',"error":' if self.code else b',"result":'
        return b"".join((b'{"jsonrpc":"2.0","id":', request_id, member, *self.parts, b"}"))


class Wishes(NamedTuple):
    """What a `_meta` asks for beside the answer: progress under a token, log lines from a level on."""

    token: int | str | None = None
    level: str | None = None


NO_WISHES = Wishes()


class Plan(NamedTuple):
    """A plain request: its id as JSON, the work that gives its answer, and where that may say something before."""

    request_id: bytes
    work: Coroutine[Any, Any, Answer]
    outlet: MessageOutlet | None = None


class Announced(NamedTuple):
    """What the headers of a plain request say of it; `tool` is empty for a list."""

    method: str
    tool: str


class FastPath:
    """Plain `tools/list` and `tools/call`, for every transport.

    Args:
        gateway: answers for the catalog.
        lists: writes its lists; one that needs pages is the SDK's.
        seal: seals the state of a result that asks for input.
        accepts: judges a `_meta` of unusual form, as the SDK would; without it such requests are the SDK's.
        discovers: answers server/discover too; over HTTP that is the SDK's.
    """

    def __init__(
        self,
        gateway: Gateway,
        lists: Lists,
        *,
        seal: Seal,
        accepts: Callable[[JSON], bool] | None = None,
        discovers: bool = False,
    ) -> None:
        self._gateway, self._lists, self._seal, self._accepts = gateway, lists, seal, accepts
        self._discovers = discovers
        self._meta = {SERVER_KEY: server_info(gateway)}
        self._call_tail = b',"resultType":"complete","_meta":%b}' % orjson.dumps(self._meta)
        self._accepted = BoundedCache[bytes, None](max_entries=META_REMEMBERED)

    def plan(self, message: JSONValue, principal: Principal, *, announced: Announced | None = None) -> Plan | None:
        """Return the work for a plain request; `None` when the SDK shall look at it.

        `announced` is what the headers say of it, which must be what it says itself; other transports have no headers.
        """
        request = as_object(message)
        if request is None or request.keys() != _BODY_KEYS or request["jsonrpc"] != "2.0":
            return None
        request_id, params, method = request["id"], as_object(request["params"]), request["method"]
        if type(request_id) not in (int, str) or params is None:
            return None
        wishes = self._wishes(params.get("_meta"))
        if wishes is None or (announced is not None and announced != (method, params.get("name", ""))):
            return None
        outlet = None if wishes is NO_WISHES else MessageOutlet()
        if method == "tools/call":
            work = self._call(params, principal, wishes, outlet)
        elif method == "tools/list" and len(params) == 1 and self._lists.fit_a_page():
            work = self._list(principal, params["_meta"][_CAPABILITIES_KEY])
        elif method == "server/discover" and len(params) == 1 and self._discovers:
            work = self._discovery()
        else:
            return None
        return None if work is None else Plan(json_bytes(request_id), answered(work), outlet)

    async def _discovery(self) -> Answer:
        return Answer((json_bytes({**discovery(self._gateway), "resultType": "complete", "_meta": self._meta}),))

    async def _list(self, principal: Principal, capabilities: JSON) -> Answer:
        return Answer(await self._lists.tools_as_bytes(principal, capabilities))

    def _call(
        self, params: JSON, principal: Principal, wishes: Wishes, outlet: MessageOutlet | None
    ) -> Coroutine[Any, Any, Answer] | None:
        name: Any = params.get("name")
        raw: Any = params.get("arguments")
        arguments = {} if raw is None else as_object(raw)
        if (
            type(name) is not str
            or arguments is None
            or not params.keys() <= _CALL_KEYS
            or self._gateway.may_mirror(name)
        ):
            return None
        capabilities = params["_meta"][_CAPABILITIES_KEY]
        if outlet is None:
            channel = InputRequiredChannel(capabilities)
        else:
            channel = NotifyingChannel(capabilities)
            channel.tell_through(outlet, token=wishes.token, level=wishes.level)
        return self._answer_call(principal, name, arguments, params, channel)

    async def _answer_call(
        self, principal: Principal, name: str, arguments: JSON, params: JSON, channel: InputRequiredChannel
    ) -> Answer:
        result = await self._gateway.call(principal, name, arguments, channel)
        if "requestState" in result:
            result = await self._seal(result, params, principal)
        if "_meta" not in result and "resultType" not in result:
            return Answer((json_bytes(result)[:-1], self._call_tail))
        meta = {**result.get("_meta", {}), **self._meta}
        return Answer((json_bytes({"resultType": "complete", **result, "_meta": meta}),))

    def _wishes(self, meta: Any) -> Wishes | None:
        """Return what a `_meta` asks for that the SDK would accept; `None` when the SDK shall look at it.

        What most clients send is remembered once it was judged, without the keys that change with each request.
        """
        envelope = as_object(meta)
        # Who has passed other servers on its way is the SDK's too.
        if envelope is None or HOPS_KEY in envelope:
            return None
        try:
            key = orjson.dumps([envelope.get(VERSION_KEY), envelope.get(_CAPABILITIES_KEY), envelope.get(_CLIENT_KEY)])
        except TypeError:
            return None
        names = envelope.keys()
        is_plain = names <= _PLAIN_META
        is_usual = is_plain or names <= _KNOWN_META or not _has_unread(names)
        if not (is_usual and key in self._accepted):
            is_accepted = is_usual and _is_usual_envelope(envelope)
            if not is_accepted and (self._accepts is None or not self._accepts(envelope)):
                return None
            if is_usual and len(key) <= META_REMEMBERED_BYTES:
                self._accepted.remember(key, None)
        return NO_WISHES if is_plain else _wishes(envelope)


def _has_unread(names: Iterable[str]) -> bool:
    """Tell whether a key may mean something to the SDK that we do not read."""
    for name in names:  # noqa: SIM110 - a generator costs as much again as the answer
        if name not in _KNOWN_META and name.startswith(_NOT_FOREIGN):
            return True
    return False


def _wishes(envelope: JSON) -> Wishes | None:
    """Return what the two keys say that ask for something; `None` when they say it in a form of their own."""
    token: Any = envelope.get(PROGRESS_KEY)
    level: Any = envelope.get(_LEVEL_KEY)
    if (PROGRESS_KEY in envelope and type(token) not in (int, str)) or not (level is None or level in LEVELS):
        return None
    return NO_WISHES if token is None and level is None else Wishes(token, level)


async def answered(work: Awaitable[Answer]) -> Answer:
    """Return the answer of some work, whatever becomes of it."""
    try:
        return await work
    except RpcError as error:
        return error_answer(error)
    except Exception:  # boundary: the server's outermost handler; a bug says nothing to the client
        log.exception("A request failed.")
        return error_answer(RpcError(INTERNAL_ERROR, "Internal server error"))


def _is_usual_envelope(meta: JSON) -> bool:
    """Tell whether version, capabilities and client have the forms that most clients send."""
    declared = as_object(meta.get(_CAPABILITIES_KEY))
    if meta.get(VERSION_KEY) != VERSION or declared is None:
        return False
    for name, value in declared.items():
        known, parts = _PLAIN_CAPABILITIES.get(name), as_object(value)
        if known is None or parts is None or not known.issuperset(parts):
            return False
        if any(part != {} for part in parts.values()):
            return False
    return _CLIENT_KEY not in meta or is_usual_client(meta[_CLIENT_KEY])


def is_usual_client(named: Any) -> bool:
    """Tell whether a client names itself in the form that most do."""
    client = as_object(named)
    if client is None or not {"name", "version"} <= client.keys() <= _CLIENT_WORDS:
        return False
    return all(type(word) is str for word in client.values())


def error_answer(error: RpcError) -> Answer:
    """Return the JSON-RPC error for a refusal."""
    shown: JSON = {"code": error.code, "message": error.message}
    if error.data is not None:
        shown["data"] = error.data
    return Answer((json_bytes(shown),), code=error.code)
