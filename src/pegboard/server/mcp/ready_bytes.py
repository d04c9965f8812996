"""ReadyBytes: a cache in front of the dispatcher, for the request forms that most clients send.

It remembers accepted forms of `_meta`, recognises the params of a few methods without the models of the MCP SDK, and
answers tools/list with prepared bytes. Unrecognised requests go to the dispatcher, which accepts the same requests
and gives the same answers: without this cache the server is slower, not different.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from types import NoneType
from typing import Any, Final, NamedTuple

import orjson

from pegboard.core.bounded_cache import BoundedCache
from pegboard.model.bounds import KIB
from pegboard.model.hops import HOPS_KEY
from pegboard.model.json_types import JSON, JSONValue
from pegboard.server.gateway import Gateway
from pegboard.server.mcp.asking.notifications import LEVELS, MessageOutlet
from pegboard.server.mcp.asking.request_states import ASKING_METHODS
from pegboard.server.mcp.dispatcher import Dispatcher
from pegboard.server.mcp.handlers.lists import Lists
from pegboard.server.mcp.protocol.answers import Stream
from pegboard.server.mcp.protocol.capabilities import has_resources
from pegboard.server.mcp.protocol.jsonrpc import as_object, is_id, json_bytes
from pegboard.server.mcp.protocol.requests import (
    CAPABILITIES_KEY,
    CLIENT_KEY,
    LEVEL_KEY,
    MODERN,
    PROGRESS_KEY,
    RESERVED,
    VERSION_KEY,
    Era,
    McpRequest,
)
from pegboard.server.mcp.protocol.revisions import EARLIER_VERSIONS, VERSION
from pegboard.server.principal import Principal

SWITCH = "PEGBOARD_READY_BYTES"
META_REMEMBERED = KIB  # accepted forms of `_meta` that are remembered
META_REMEMBERED_BYTES = 4_096  # bytes of such a form

_PLAIN_META = frozenset((VERSION_KEY, CAPABILITIES_KEY, CLIENT_KEY, "traceparent", "tracestate", "baggage"))
_KNOWN_META = frozenset((*_PLAIN_META, PROGRESS_KEY, LEVEL_KEY))
_NOT_FOREIGN = (RESERVED, "io_modelcontextprotocol", "progress_token")
"""Prefixes of keys that may have a meaning in the protocol, and are not recognised here."""
_EARLIER_NOT_RECOGNISED = frozenset((HOPS_KEY, VERSION_KEY, "progress_token"))
_PLAIN_CAPABILITIES = {"elicitation": frozenset(("form", "url")), "sampling": frozenset(("context", "tools"))}
_INITIAL_CAPABILITIES: dict[str, tuple[JSON, ...]] = {
    "elicitation": ({}, {"form": {}}, {"form": {}, "url": {}}),
    "sampling": ({}, {"tools": {}}),
    "roots": ({}, {"listChanged": True}, {"listChanged": False}),
}
_INITIAL_VERSIONS: Final = frozenset(EARLIER_VERSIONS)
_CLIENT_WORDS = frozenset(("name", "version", "title", "description", "websiteUrl"))
_BODY_KEYS = frozenset(("jsonrpc", "id", "method", "params"))
_CALL_KEYS = frozenset(("name", "arguments", "_meta"))
_EARLIER_CALL_KEYS = frozenset((*_CALL_KEYS, "task"))
_URI_KEYS = frozenset(("uri", "_meta"))
_TASK_KEYS = frozenset(("taskId", "_meta"))
_META_ONLY = frozenset(("_meta",))


class Announced(NamedTuple):
    """The method and target named by the headers of a 2026-07-28 request; the target may be empty."""

    method: str
    target: str


TARGETS: Final = {
    "tools/call": "name", "prompts/get": "name", "resources/read": "uri", "tasks/get": "taskId",
    "tools/list": "", "server/discover": "",
}  # fmt: skip
"""The recognised 2026-07-28 methods, and the param that a header repeats."""
_EARLIER_METHODS: Final = frozenset(
    ("initialize", "ping", "tools/list", "tools/call", "resources/read", "prompts/get", "tasks/get")
)


class ReadyBytes:
    """Recognises requests of both eras, for every transport.

    Args:
        gateway: the catalog's answers.
        lists: serialises lists; paged lists go to the dispatcher.
        dispatcher: runs the handlers.
        accepts: judges a `_meta` of unusual form; without it such requests go to the dispatcher.
    """

    def __init__(
        self,
        gateway: Gateway,
        lists: Lists,
        dispatcher: Dispatcher,
        *,
        accepts: Callable[[JSON], bool] | None = None,
    ) -> None:
        self._gateway, self._lists, self._dispatcher, self._accepts = gateway, lists, dispatcher, accepts
        self._accepted = BoundedCache[bytes, None](max_entries=META_REMEMBERED)

    # -- 2026-07-28

    def recognise(
        self, message: JSONValue, principal: Principal, *, announced: Announced | None = None
    ) -> Stream | None:
        """Return the work for a 2026-07-28 request; `None` if the dispatcher must check it.

        `announced` is what the headers name, which must match the body; other transports do not have headers.
        """
        request = as_object(message)
        if request is None or request.keys() != _BODY_KEYS or request["jsonrpc"] != "2.0":
            return None
        request_id, params, method = request["id"], as_object(request["params"]), request["method"]
        if type(request_id) not in (int, str) or params is None or type(method) is not str:
            return None
        target = TARGETS.get(method)
        if target is None or (announced is not None and announced != (method, params.get(target, ""))):
            return None
        wishes = self._wishes(params.get("_meta"))
        if wishes is None or not self._is_plain(method, params, _CALL_KEYS):
            return None
        capabilities = params["_meta"][CAPABILITIES_KEY]
        if method == "tools/list":
            if not self._lists.fit_a_page():
                return None
            listed = self._lists.tools_as_bytes(principal, capabilities)
            return Stream(json_bytes(request_id), self._dispatcher.guarded(listed))
        # A server whose arguments are mirrored in headers checks them against the tool's schema.
        if method == "tools/call" and announced is not None and self._gateway.may_mirror(params["name"]):
            return None
        outlet = None if wishes is NO_WISHES else MessageOutlet()
        return self._dispatcher.begin(
            McpRequest(method, request_id, params, principal, MODERN, capabilities, outlet, wishes.token, wishes.level)
        )

    def _wishes(self, meta: Any) -> Wishes | None:
        """Return the requests in an acceptable `_meta`; `None` if the dispatcher must check it.

        An accepted form is remembered without the keys that change per request.
        """
        envelope = as_object(meta)
        if envelope is None or HOPS_KEY in envelope:
            return None
        try:
            key = orjson.dumps([envelope.get(VERSION_KEY), envelope.get(CAPABILITIES_KEY), envelope.get(CLIENT_KEY)])
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

    # -- earlier revisions

    def recognise_earlier(self, request: JSON, principal: Principal, era: Era) -> Stream | None:
        """Return the work for a request of a session; `None` if the dispatcher must check it."""
        session, method = era.session, request.get("method")
        request_id: Any = request.get("id")
        params = as_object(request.get("params", {}))
        if (
            session is None
            or not request.keys() <= _BODY_KEYS
            or request.get("jsonrpc") != "2.0"
            or type(request_id) not in (int, str)
            or params is None
            or type(method) is not str
            or method not in _EARLIER_METHODS
        ):
            return None
        if method == "initialize":
            return self._initialize(McpRequest(method, request_id, params, principal, era, {}))
        meta = as_object(params.get("_meta", {}))
        if not session.version or meta is None or not meta.keys().isdisjoint(_EARLIER_NOT_RECOGNISED):
            return None
        token: Any = meta.get(PROGRESS_KEY)
        if (PROGRESS_KEY in meta and type(token) not in (int, str)) or not self._is_plain(
            method, params, _EARLIER_CALL_KEYS
        ):
            return None
        if method == "tools/list":
            if not self._lists.fit_a_page():
                return None
            listed = self._lists.tools_as_bytes_before_2026(principal, session.capabilities)
            return Stream(json_bytes(request_id), self._dispatcher.guarded(listed))
        outlet = MessageOutlet() if method in ASKING_METHODS else None
        return self._dispatcher.begin(
            McpRequest(method, request_id, params, principal, era, session.capabilities, outlet, token)
        )

    def _initialize(self, request: McpRequest) -> Stream | None:
        params = request.params
        capabilities = as_object(params.get("capabilities"))
        if (
            params.keys() != {"protocolVersion", "capabilities", "clientInfo"}
            or type(params["protocolVersion"]) is not str
            or params["protocolVersion"] not in _INITIAL_VERSIONS
            or capabilities is None
            or any(value not in _INITIAL_CAPABILITIES.get(name, ()) for name, value in capabilities.items())
            or not is_usual_client(params["clientInfo"])
        ):
            return None
        return self._dispatcher.begin(request)

    # -- both

    def _is_plain(self, method: str, params: JSON, call_keys: frozenset[str]) -> bool:
        """Tell whether the params of a method have a form that its model certainly accepts."""
        match method:
            case "tools/call":
                return (
                    type(params.get("name")) is str
                    and type(params.get("arguments")) in (dict, NoneType)
                    and params.keys() <= call_keys
                    and ("task" not in params or _is_task(params["task"]))
                )
            case "resources/read":
                return type(params.get("uri")) is str and params.keys() <= _URI_KEYS and has_resources(self._gateway)
            case "prompts/get":
                arguments = params.get("arguments")
                return (
                    type(params.get("name")) is str
                    and params.keys() <= _CALL_KEYS
                    and (arguments is None or _are_texts(arguments))
                    and has_resources(self._gateway)
                )
            case "tasks/get":
                return type(params.get("taskId")) is str and params.keys() <= _TASK_KEYS
            case _:
                return params.keys() <= _META_ONLY


def ready_bytes(
    gateway: Gateway, lists: Lists, dispatcher: Dispatcher, *, accepts: Callable[[JSON], bool] | None = None
) -> ReadyBytes | None:
    """Return the cache; `None` if the operator switched it off with `PEGBOARD_READY_BYTES=off`."""
    if os.environ.get(SWITCH) == "off":
        return None
    return ReadyBytes(gateway, lists, dispatcher, accepts=accepts)


class Wishes(NamedTuple):
    """The requests of a `_meta` in addition to the answer: progress under a token, log messages from a level."""

    token: int | str | None = None
    level: str | None = None


NO_WISHES = Wishes()


def _is_task(value: object) -> bool:
    asked = as_object(value)
    return asked is not None and type(asked.get("ttl")) in (int, NoneType)


def _are_texts(value: object) -> bool:
    texts = as_object(value)
    return texts is not None and all(type(text) is str for text in texts.values())


def _has_unread(names: Iterable[str]) -> bool:
    """Tell whether a key may have a meaning in the protocol that is not recognised here."""
    for name in names:  # noqa: SIM110 - a generator costs as much again as the answer
        if name not in _KNOWN_META and name.startswith(_NOT_FOREIGN):
            return True
    return False


def _wishes(envelope: JSON) -> Wishes | None:
    """Return the progress token and log level; `None` if their form is unusual."""
    token: Any = envelope.get(PROGRESS_KEY)
    level: Any = envelope.get(LEVEL_KEY)
    if (PROGRESS_KEY in envelope and not is_id(token)) or not (level is None or level in LEVELS):
        return None
    return NO_WISHES if token is None and level is None else Wishes(token, level)


def _is_usual_envelope(meta: JSON) -> bool:
    """Tell whether version, capabilities and client have common forms."""
    declared = as_object(meta.get(CAPABILITIES_KEY))
    if meta.get(VERSION_KEY) != VERSION or declared is None:
        return False
    for name, value in declared.items():
        known, parts = _PLAIN_CAPABILITIES.get(name), as_object(value)
        if known is None or parts is None or not known.issuperset(parts):
            return False
        if any(part != {} for part in parts.values()):
            return False
    return CLIENT_KEY not in meta or is_usual_client(meta[CLIENT_KEY])


def is_usual_client(named: Any) -> bool:
    """Tell whether a client's name and version have the common form."""
    client = as_object(named)
    if client is None or not {"name", "version"} <= client.keys() <= _CLIENT_WORDS:
        return False
    return all(type(word) is str for word in client.values())
