"""Api: the common steps of every plain HTTP request: address, credential, method, query; then the answer."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import parse_qsl

from starlette.types import Receive, Scope, Send

from pegboard.core.ports import AuditEvent
from pegboard.model.context import ToolContext
from pegboard.model.error import CallError
from pegboard.model.hops import HOPS_HEADER, ids_of_header
from pegboard.model.json_types import JSON, is_object
from pegboard.model.record import CarriesCredentials
from pegboard.server.authenticator import Authenticator
from pegboard.server.body_reader import BodyError, BodyReader, ClientLeftError, is_json_body
from pegboard.server.event_hub import EventHub
from pegboard.server.gateway import Gateway
from pegboard.server.host_guard import OTHER_PAGE, HostGuard, Refusal, is_of_another_page
from pegboard.server.http_api.problem_details import KIND_OF_STATUS, STATUS_OF_KIND, ProblemError, not_found
from pegboard.server.http_api.responses import Reply, problem_reply
from pegboard.server.http_api.upload_places import UploadPlaces
from pegboard.server.open_requests import OpenRequests
from pegboard.server.principal import Principal
from pegboard.server.sealing import Sealing

QUERY_FIELDS = 20  # of one URL

log = logging.getLogger("pegboard.serve")


class ApiRequest(CarriesCredentials, frozen=True, kw_only=True):
    """An admitted request."""

    principal: Principal
    path: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[bytes, bytes]
    base: str
    receive: Receive
    send: Send
    is_head: bool = False


_READING = frozenset({"GET", "HEAD"})
Answer = Callable[[ApiRequest], Awaitable[Reply | None]]
"""Returns the reply; `None` if it has written its answer itself."""


class Api:
    """The parts shared by all paths.

    Args:
        gateway: the catalog's answers.
        host_guard: checks Host and Origin.
        authenticator: identifies the caller.
        event_hub: reports its calls to listeners.
        sealing: seals cursors.
    """

    def __init__(
        self,
        gateway: Gateway,
        host_guard: HostGuard,
        authenticator: Authenticator,
        event_hub: EventHub,
        sealing: Sealing,
    ) -> None:
        bounds = gateway.registry.bounds
        self.gateway, self.host_guard, self.authenticator, self.event_hub = (
            gateway,
            host_guard,
            authenticator,
            event_hub,
        )
        self.sealing, self.body_reader = sealing, BodyReader(bounds)
        self.open = OpenRequests(bounds.calls_in_flight)
        self.uploads = UploadPlaces()
        self.is_closing = False

    async def authenticate(self, scope: Scope, profile: str | None) -> Principal:
        """Return the caller and the profile of a request.

        Raises:
            ProblemError: the caller is refused, or does not have this profile.
        """
        principal = await self.authenticator.authenticate(scope, profile)
        if isinstance(principal, Refusal):
            raise problem_of(principal)
        return principal

    def context(self, request: ApiRequest) -> ToolContext:
        """Return a fresh context of the caller, with the servers that the request has passed.

        Raises:
            ProblemError: it has passed this server before, or too many.
        """
        header = request.headers.get(HOPS_HEADER.encode())
        hops = None if header is None else ids_of_header(header.decode("latin-1"))
        try:
            return self.gateway.context(request.principal, hops=hops)
        except CallError as error:
            kind = error.error.kind
            raise ProblemError(STATUS_OF_KIND[kind], kind, error.error.message) from None

    def note_change(self, request: ApiRequest, event: AuditEvent, detail: JSON) -> None:
        """Record a change of what may be called in the audit, if there is one, with the name of who made it."""
        audit, who = self.gateway.catalog.executor.ports.audit, request.principal.identity
        if audit is not None:
            audit.note(event, detail, by=who.user or who.key or who.credential)

    async def body(self, request: ApiRequest) -> JSON:
        """Return the JSON object in a request's body; an empty body is an empty object.

        Raises:
            ProblemError: it is not a JSON object within the limits.
            ClientLeftError: the client has disconnected.
        """
        try:
            raw = await self.body_reader.read(dict(request.headers), request.receive)
            if not raw:
                return {}
            if not is_json_body(request.headers.get(b"content-type", b"")):
                raise BodyError(415, 0, "Send the arguments as application/json, in UTF-8.")
            arguments = self.body_reader.parse(raw)
        except BodyError as error:
            raise _problem_of_body(error) from None
        if not is_object(arguments):
            raise ProblemError(422, "invalid_arguments", "The arguments must be a JSON object.")
        return arguments

    async def file(self, request: ApiRequest, *, timeout_s: float) -> bytes:
        """Return the bytes of an uploaded file.

        Raises:
            ProblemError: it is too long, or not complete in time.
            ClientLeftError: the client has disconnected.
        """
        limit = self.gateway.registry.bounds.upload_bytes
        try:
            return await self.body_reader.read(
                dict(request.headers), request.receive, limit_bytes=limit, timeout_s=timeout_s
            )
        except BodyError as error:
            raise _problem_of_body(error) from None


def _problem_of_body(error: BodyError) -> ProblemError:
    text = error.text.removeprefix("Parse error: ")
    closing = {} if error.status in (400, 415) else {"connection": "close"}
    return ProblemError(error.status, KIND_OF_STATUS[error.status], text, headers=closing)


class PathApp:
    """One path as an ASGI app: its methods, query parameters, and handler.

    A query parameter with a dot at its end, such as `meta.`, stands for all that begin with it.
    """

    def __init__(self, api: Api, answers: Mapping[str, Answer], *, query: tuple[str, ...] = ()) -> None:
        self._api, self._answers, self._query = api, answers, frozenset((*query, "profile"))
        self._prefixes = tuple(each for each in query if each.endswith("."))
        methods = {*answers, *(("HEAD",) if "GET" in answers else ())}
        self._allow = ", ".join(sorted(methods))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_head = scope["method"] == "HEAD"
        try:
            reply = await self._reply(scope, receive, send)
        except ClientLeftError:
            return
        except ProblemError as problem:
            reply = problem_reply(problem)
        except Exception:  # boundary: the server's outermost handler; a bug says nothing to the client
            log.exception("A request to %r failed.", scope["path"])
            reply = problem_reply(ProblemError(500, "internal_error", "Internal server error"))
        if reply is not None:
            await reply.send(send, is_head=is_head)

    async def _reply(self, scope: Scope, receive: Receive, send: Send) -> Reply | None:
        # httptools keeps whitespace around values (RFC 9110, 5.5).
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        refusal = self._api.host_guard.refusal(scope["headers"])
        if refusal is None and scope["method"] not in _READING and is_of_another_page(scope):
            refusal = OTHER_PAGE
        if refusal is not None:
            raise problem_of(refusal)
        answer = self._answers.get("GET" if scope["method"] == "HEAD" else scope["method"])
        if answer is None:
            text = f"{scope['method'][:20]!r} is not possible here; possible: {self._allow}."
            raise ProblemError(405, "method_not_allowed", text, headers={"allow": self._allow})
        query = self._words(scope["query_string"])
        if "\0" in scope["path"]:
            raise not_found("Not found")
        if self._api.open.is_full:
            raise _busy()
        principal = await self._api.authenticate(scope, query.get("profile"))
        request = ApiRequest(
            principal=principal, path=scope.get("path_params", {}), query=query, headers=dict(scope["headers"]),
            base=scope.get("root_path", ""), receive=receive, send=send, is_head=scope["method"] == "HEAD",
        )  # fmt: skip
        whose = self._api.open.enter(principal)
        if whose is None:
            raise _busy()
        try:
            return await answer(request)
        finally:
            self._api.open.leave(whose)

    def _words(self, raw: bytes) -> dict[str, str]:
        """Return the query; an unknown or repeated parameter is refused, not ignored."""
        try:
            pairs = parse_qsl(raw.decode("latin-1"), keep_blank_values=True, max_num_fields=QUERY_FIELDS)
        except ValueError:
            raise ProblemError(400, "bad_request", "The query has too many fields.") from None
        words = dict(pairs)
        unknown = [name for name in words if name not in self._query and not name.startswith(self._prefixes)]
        if unknown or len(words) != len(pairs):
            named = f"Unknown parameter {unknown[0][:100]!r}." if unknown else "A parameter is there twice."
            raise ProblemError(400, "bad_request", f"{named} Possible here, once each: {sorted(self._query)}.")
        if "\0" in "".join(words.values()):
            raise ProblemError(400, "bad_request", "There is a NUL character in the query. Take it out.")
        if words.get("profile") == "":
            raise not_found("Not found")
        return words


class UnknownPath(PathApp):
    """Answers every unknown path."""

    def __init__(self, api: Api) -> None:
        super().__init__(api, {})

    async def _reply(self, scope: Scope, receive: Receive, send: Send) -> Reply | None:
        refusal = self._api.host_guard.refusal(scope["headers"])
        raise problem_of(refusal) if refusal is not None else not_found("Not found")


def _busy() -> ProblemError:
    return ProblemError(503, "busy", "The server is busy. Try again in a moment.", headers={"retry-after": "1"})


def problem_of(refusal: Refusal) -> ProblemError:
    """Return the problem details of a refused request."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in refusal.headers}
    return ProblemError(refusal.status, KIND_OF_STATUS.get(refusal.status, "forbidden"), refusal.text, headers=headers)


async def client_gone(receive: Receive) -> None:
    """Wait until the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
