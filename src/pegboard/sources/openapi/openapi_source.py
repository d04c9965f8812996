"""OpenAPI source: the operations of one API as tools, from a text or fetched at start."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

import msgspec

from pegboard.connections.upstream_credentials import UpstreamCredentials, account_of
from pegboard.core.cancellation import cancel_and_wait
from pegboard.core.digests import digest
from pegboard.core.names import matches
from pegboard.egress.connections import Resolve, system_resolve
from pegboard.egress.credential_redaction import credentials_in, without_credentials
from pegboard.egress.destinations import Destinations, only_host_of
from pegboard.egress.http import GuardedClient, as_servers_read
from pegboard.egress.limits import PROBE_S
from pegboard.egress.reachability import check_reachable
from pegboard.egress.responses import text_of
from pegboard.model.bounds import DEFAULT_BOUNDS, Bounds
from pegboard.model.call_context import CallContext
from pegboard.model.call_intent import with_marks
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.json_types import JSON, JSONValue
from pegboard.model.record import CarriesCredentials, replace
from pegboard.model.secret import Secret
from pegboard.model.source_state import SourceState
from pegboard.model.tool import ToolEntry, ToolSpec
from pegboard.sources.composable import Composable
from pegboard.sources.foreign_text import cleaned
from pegboard.sources.http_service import SERVICE_GRACE_S, HttpService, value_of
from pegboard.sources.openapi.api_description import Document, UnfitError, checked_base, origin_of, server_of
from pegboard.sources.openapi.operation_call import request_of
from pegboard.sources.openapi.operations import Operation, OperationReader, raw_name
from pegboard.sources.openapi.security_schemes import SecurityNeeds, security_of
from pegboard.sources.tool_names import own_names

OPENAPI_FETCH_S = 30.0  # seconds to fetch a description
OPENAPI_SOON_FAILURES = 5  # failed fetches until its operations are no longer expected soon
OPENAPI_RETRY_WAITS_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0)  # seconds between failed fetches; the last one repeats
OPENAPI_NAME_BYTES = 256  # bytes of an operation's name before it becomes a tool name

log = logging.getLogger("pegboard")


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiSettings:
    """One API.

    `spec` is the URL of its description, or `None` if the text is passed in. `operations` and the keys of
    `operation_groups` and `call_intent` are globs over operationIds, our names, and `GET /path`; `rename` maps an
    operationId or a `GET /path` to our name. `headers` and `query` are sent with every request. `own` are fields of
    every tool's declaration. `read` parses the text of a description. `credentials` provide a token for each request.
    `authenticate` returns the ones to use instead, from the security schemes of the document; it may run in a thread,
    and raises `DefinitionError`.
    """

    name: str
    read: Callable[[str], JSONValue] = field(repr=False)
    spec: str | None = None
    operations: tuple[str, ...] = ("*",)
    base_url: str | None = None
    headers: Mapping[str, str | Secret] = field(default_factory=dict[str, "str | Secret"], repr=False)
    query: Mapping[str, str | Secret] = field(default_factory=dict[str, "str | Secret"])
    groups: tuple[str, ...] = ("core",)
    rename: Mapping[str, str] = field(default_factory=dict[str, str])
    operation_groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    call_intent: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    own: Mapping[str, Any] = field(default_factory=dict[str, Any])
    timeout_s: float = DEFAULT_BOUNDS.tool_timeout_s
    origin: str = ""
    bounds: Bounds = DEFAULT_BOUNDS
    resolve: Resolve = field(default=system_resolve, repr=False)
    credentials: UpstreamCredentials | None = field(default=None, repr=False)
    authenticate: Callable[[SecurityNeeds], ApiAuth] | None = field(default=None, repr=False)

    @property
    def auth(self) -> ApiAuth:
        """The configured authentication, without the additions of the document."""
        return ApiAuth(headers=self.headers, query=self.query, credentials=self.credentials)

    def groups_of(self, spellings: Sequence[str]) -> tuple[str, ...]:
        """Return the groups of one operation: those of every matching glob, else those of the API."""
        fitting = [groups for glob, groups in self.operation_groups.items() if matches(glob, spellings)]
        return tuple(dict.fromkeys(group for groups in fitting for group in groups)) or self.groups

    def filled_by_intent(self, spellings: Sequence[str]) -> frozenset[str]:
        """Return the properties of one operation that are filled from a batch's intent."""
        return frozenset(name for glob, names in self.call_intent.items() if matches(glob, spellings) for name in names)


class ApiAuth(CarriesCredentials, frozen=True, kw_only=True):
    """The authentication of requests to an API: headers, query parameters, and a token."""

    headers: Mapping[str, str | Secret] = msgspec.field(default_factory=dict[str, "str | Secret"])
    query: Mapping[str, str | Secret] = msgspec.field(default_factory=dict[str, "str | Secret"])
    credentials: UpstreamCredentials | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is sent."""
        return not (self.headers or self.query) and self.credentials is None

    def secrets(self) -> Iterator[Secret]:
        """Yield the credentials."""
        if self.credentials is not None:
            yield from self.credentials.secrets()
        for value in (*self.headers.values(), *self.query.values()):
            if isinstance(value, Secret):
                yield from credentials_in(value)


class _Chosen(NamedTuple):
    """A selected operation, and its names for globs."""

    method: str
    path: str
    item: JSON
    operation: JSON
    spellings: tuple[str, str]


class Rejected(NamedTuple):
    """An operation that was left out, with the reason."""

    name: str
    reason: str


class OpenApiSource(Composable):
    """The operations of one API. Implements the port `Source`. `rejected` lists the operations left out, and why.

    `auth` is the authentication of each request; the document may complete it. `unmet` says which credentials the
    document requires while none are configured; it is empty otherwise.
    """

    def __init__(self, settings: ApiSettings, *, sleep: Callable[[float], Any] = asyncio.sleep) -> None:
        self.settings = settings
        self.rejected: tuple[Rejected, ...] = ()
        self.auth, self.unmet = settings.auth, ""
        self._entries: tuple[ToolEntry, ...] = ()
        self._on_change: list[Callable[[], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._fault: CallError | None = None
        self._tried = asyncio.Event()
        self._sleep = sleep
        self._server: tuple[str, Destinations] | None = None
        self._is_read = False
        self._failures = 0

    @property
    def name(self) -> str:
        return self.settings.name

    def entries(self) -> Sequence[ToolEntry]:
        return self._entries

    def groups(self) -> frozenset[str]:
        settings = self.settings
        return frozenset(settings.groups).union(*settings.operation_groups.values())

    def secrets(self) -> Iterator[Secret]:
        """Yield the credentials of the API, which are also redacted from its description."""
        return self.auth.secrets()

    def subscribe(self, on_change: Callable[[], None]) -> None:
        self._on_change.append(on_change)

    def state(self) -> SourceState:
        """Return the state of the description; the API itself is only contacted by calls."""
        if self._is_read:
            return SourceState()
        reason = "" if self._fault is None else self._fault.error.message
        status = "connecting" if self._fault is None else "unreachable"
        return SourceState(status=status, is_up=False, reason=reason)

    def is_starting(self) -> bool:
        """Tell whether the operations are expected soon: fetching them has failed only a few times."""
        return self._task is not None and not self._is_read and self._failures < OPENAPI_SOON_FAILURES

    async def start(self) -> None:
        """Start fetching the description, unless it has been read. Returns immediately."""
        if not self._is_read and self._task is None:
            self._task = asyncio.create_task(self._fetch_until_read(), name=f"openapi-{self.name}")

    async def stop(self) -> None:
        """Stop fetching."""
        task, self._task = self._task, None
        if task is not None:
            await cancel_and_wait(task)

    async def first_listed(self) -> None:
        """Wait until the description was read, or reading it has failed."""
        await self.listed()

    async def listed(self, *, afresh: bool = False) -> None:
        """Wait until the operations are known or fetching failed. `afresh` has no effect: it is read once."""
        if not self._is_read:
            await self._tried.wait()

    async def probe(self) -> None:
        """Check that the server of the operations accepts connections; see `core.ports.Probed`.

        Raises:
            OSError, CallError: it does not.
        """
        if self._server is None:
            raise self._fault or CallError("upstream_unavailable", "Its description has not been fetched yet.")
        base, destinations = self._server
        await check_reachable(base, destinations, timeout_s=PROBE_S, resolve=self.settings.resolve)

    # ---- the description

    async def _fetch_until_read(self) -> None:
        for attempt in count():
            try:
                self._offer(*await asyncio.to_thread(self._read, await self._fetched()))
                return
            except (CallError, DefinitionError) as error:
                self._failed(error)
            finally:
                self._tried.set()
            await self._sleep(OPENAPI_RETRY_WAITS_S[min(attempt, len(OPENAPI_RETRY_WAITS_S) - 1)])

    async def _fetched(self) -> str:
        settings = self.settings
        assert settings.spec is not None
        async with GuardedClient(
            only_host_of(settings.spec), bounds=settings.bounds, resolve=settings.resolve
        ) as client:
            response = await client.request(
                "GET",
                settings.spec,
                headers={"accept": "application/json, application/yaml;q=0.9, */*;q=0.5"},
                timeout_s=OPENAPI_FETCH_S,
                max_response_bytes=settings.bounds.api_description_bytes,
            )
        if response.status_code != 200:
            raise CallError("upstream_error", f"its server answered {response.status_code}")
        return text_of(response)

    def _failed(self, error: CallError | DefinitionError) -> None:
        reason = error.error.message if isinstance(error, CallError) else f"it {error}"
        text = f"The description of API {self.name!r} is unavailable: {reason}"
        if self._fault is None or self._fault.error.message != text:
            log.warning("%s Pegboard will try again.", text)
        self._fault = CallError("upstream_unavailable", text)
        self._failures += 1

    def take(self, text: str) -> None:
        """Offer the operations of a description.

        Raises:
            DefinitionError: it is invalid, or names no usable server.
        """
        self._offer(*self._read(text))

    def _offer(self, entries: Sequence[ToolEntry], rejected: Sequence[Rejected]) -> None:
        self.rejected, self._entries, self._is_read, self._fault = tuple(rejected), tuple(entries), True, None
        for name, reason in rejected[:20]:
            log.warning("API %r: operation %r was left out: %s.", self.name, name, reason)
        for notify in tuple(self._on_change):
            notify()

    def _read(self, text: str) -> tuple[list[ToolEntry], list[Rejected]]:
        """Return the tools of a description, and those left out.

        Sets only `_server`, `auth` and `unmet`: it may run in a thread.
        """
        settings = self.settings
        document = Document.read(settings.read(text), bounds=settings.bounds)
        chosen, rejected = self._chosen(document)
        needs = security_of(document, [each.operation for each in chosen.values()])
        auth = self.auth = settings.auth if settings.authenticate is None else settings.authenticate(needs)
        self.unmet = "" if needs.is_optional or not auth.is_empty else " or ".join(map(str, needs.schemes))
        base, destinations = self._server = self._base(document)
        service = HttpService(
            who=f"The API {settings.name!r}",
            destinations=destinations,
            headers=auth.headers,
            timeout_s=settings.timeout_s,
            bounds=settings.bounds,
            resolve=settings.resolve,
            credentials=auth.credentials,
        )
        renamed = {
            raw: ours
            for raw, each in chosen.items()
            for theirs, ours in settings.rename.items()
            if theirs in (raw, *each.spellings)
        }
        names = own_names(chosen, rename=renamed, namespace=settings.name)
        entries: list[ToolEntry] = []
        ours = {f"header:{as_servers_read(name)}" for name in auth.headers} | {
            f"query:{name.lower()}" for name in auth.query
        }
        reader = OperationReader(document=document, bounds=settings.bounds, ours=frozenset(ours))
        for raw, each in chosen.items():
            try:
                there = self._base_of_operation(base, each.item, each.operation)
                operation = reader.read(each.method, each.path, each.item, each.operation)
            except (UnfitError, DefinitionError, CallError) as error:
                rejected.append(Rejected(raw, str(error)))
            else:
                groups = settings.groups_of(each.spellings)
                filled = settings.filled_by_intent(each.spellings)
                operation = replace(operation, input_schema=with_marks(operation.input_schema, filled))
                entries.append(self._entry(names[raw], operation, there, service, groups=groups))
        if not entries and not rejected:
            known = ", ".join(sorted(raw_name(*parts[:2], parts[3])[:64] for parts in document.operations())[:10])
            raise DefinitionError(f"has no operation that matches `operations`; it has: {known or 'none'}")
        known_names = {name for raw, each in chosen.items() for name in (raw, *each.spellings)}
        rejected += [
            Rejected(theirs, "`rename` names it, but no selected operation has that name")
            for theirs in settings.rename
            if theirs not in known_names
        ]
        return entries, rejected

    def _chosen(self, document: Document) -> tuple[dict[str, _Chosen], list[Rejected]]:
        """Return the operations that match the globs, by name, up to the limit."""
        chosen: dict[str, _Chosen] = {}
        rejected: list[Rejected] = []
        most = self.settings.bounds.api_operations
        for method, path, item, operation in document.operations():
            raw = cleaned(raw_name(method, path, operation), max_bytes=OPENAPI_NAME_BYTES)
            place = f"{method.upper()} {path}"
            if not any(matches(glob, (raw, place)) for glob in self.settings.operations):
                continue
            if len(chosen) >= most:
                reason = f"it is beyond the first {most:,}; name those that you need under `operations`"
                rejected.append(Rejected(raw, f"{reason}, or allow more with `limits: {{api_operations: …}}`"))
                continue
            # If several share an operationId, the first keeps it; the others are named by method and path.
            names = (raw, raw_name(method, path, {}), place)
            name = next(name for name in names if name not in chosen)
            chosen[name] = _Chosen(method, path, item, operation, (raw, place))
        return chosen, rejected

    # ---- addresses of operations

    def _base(self, document: Document) -> tuple[str, Destinations]:
        """Return the base URL of the operations, and the allowed destinations.

        A host named by the operator may be private and gets the credentials. A host named only by the description is
        foreign: it must be public and gets none.
        """
        settings = self.settings
        if settings.base_url is not None:
            return checked_base(settings.base_url), only_host_of(settings.base_url)
        base = server_of(document.root, spec_url=settings.spec)
        if base is None:
            if settings.spec is None:
                raise DefinitionError("names no server; set `base_url`")
            scheme, _, rest = settings.spec.partition("://")
            base = checked_base(f"{scheme}://{rest.partition('/')[0]}")
        if settings.spec is not None and origin_of(base) == origin_of(settings.spec):
            return base, only_host_of(settings.spec)
        if not self.auth.is_empty:
            raise DefinitionError(
                f"names the server {base!r} itself; with `auth`, set `base_url` to decide who gets the credentials"
            )
        return base, Destinations(allow_hosts=only_host_of(base).allow_hosts)

    def _base_of_operation(self, base: str, item: JSON, operation: JSON) -> str:
        """Return the base URL of one operation: paths and operations may name their own server, on that host."""
        if self.settings.base_url is not None:
            return base
        # A relative URL is relative to the common server.
        own = server_of(operation, spec_url=base) or server_of(item, spec_url=base)
        if own is not None and origin_of(own) != origin_of(base):
            raise UnfitError(f"it is on another server, {own[:80]!r}")
        return own or base

    # ---- calls

    def _entry(
        self, name: str, operation: Operation, base: str, service: HttpService, *, groups: tuple[str, ...]
    ) -> ToolEntry:
        settings, auth = self.settings, self.auth
        fields: dict[str, Any] = {
            "description": operation.description,
            "input_schema": operation.input_schema,
            "output_schema": operation.output_schema,
            "annotations": operation.annotations,
            "groups": groups,
            "timeout_s": settings.timeout_s + SERVICE_GRACE_S,
            "origin": settings.origin or f"API {settings.name!r}",
        }
        spec = ToolSpec(name=name, namespace=settings.name, **(fields | dict(settings.own)))

        async def call(ctx: CallContext, args: JSON, /) -> object:
            response = await service.send(request_of(operation, args, base=base, query=auth.query), ctx)
            expects_json = operation.output_schema is not None
            return value_of(response, who=service.who, expects_json=expects_json, bounds=settings.bounds)

        secrets = list(auth.secrets())
        handler = without_credentials(call, secrets) if secrets else call
        return ToolEntry(
            spec=spec, handler=handler, source=settings.name, is_foreign=True, is_toolset=True,
            reaches=digest([base, operation.method, operation.path]), account=account_of(auth.credentials),
        )  # fmt: skip
