"""App: a catalog as an ASGI app, and a server for it."""

from __future__ import annotations

import hmac
import logging
import socket  # noqa: TID251 - listens, and calls nobody
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from pegboard.auth.rules import ConsoleRules
from pegboard.catalog import Catalog
from pegboard.core.limits import SHUTDOWN_GRACE_S
from pegboard.core.steady_clock import steady_time
from pegboard.egress.client_spans import tracer_in_use
from pegboard.extras import needs_package
from pegboard.lazy import LazyModule
from pegboard.model.error import DefinitionError, PegboardError
from pegboard.model.hops import server_id_of
from pegboard.model.probe import Part
from pegboard.model.record import CarriesCredentials, replace
from pegboard.model.secret import Secret
from pegboard.model.tool import ToolEntry
from pegboard.server.alert_watch import AlertWatch
from pegboard.server.authenticator import Authenticator
from pegboard.server.bus import Bus, Others, Transport
from pegboard.server.certificate import ServerCertificate
from pegboard.server.connect_login import ConnectLogin
from pegboard.server.connect_page import ConnectPage
from pegboard.server.connection_news import ConnectionNews
from pegboard.server.consent_page import ConsentPage
from pegboard.server.console.pending_config import PendingConfig
from pegboard.server.console_door import ConsoleDoor
from pegboard.server.credential_watch import CredentialWatch
from pegboard.server.document_watch import DocumentWatch
from pegboard.server.event_hub import EventHub
from pegboard.server.gateway import gateway_of
from pegboard.server.health import Health
from pegboard.server.host_guard import LOOPBACK_HOSTS, HostGuard, Refusal, hosts_of
from pegboard.server.http_api.api_app import Api, problem_of
from pegboard.server.http_api.responses import problem_reply
from pegboard.server.http_api.routes import Routes
from pegboard.server.identify import Identify
from pegboard.server.listener import bound_to, listen
from pegboard.server.mcp.endpoint import Endpoint
from pegboard.server.principal import choose_profile
from pegboard.server.proxy_settings import NO_PROXY, ProxySettings
from pegboard.server.sealing import Sealing, sealing_with
from pegboard.server.start_page import StartPage
from pegboard.server.workers import Worker
from pegboard.telemetry.call_log import log_calls
from pegboard.telemetry.part_states import PartStates, parts_of
from pegboard.telemetry.served_request import serving_http
from pegboard.telemetry.source_log import log_sources
from pegboard.telemetry.tracing import trace_calls

if TYPE_CHECKING:
    from pegboard.server import postgres_transport, redis_transport
else:
    postgres_transport = LazyModule("pegboard.server.postgres_transport")
    redis_transport = LazyModule("pegboard.server.redis_transport")

ADDED_TOOLS_LOGGED = 1_000  # tools that code adds while it is served; later ones are not logged

log = logging.getLogger("pegboard.serve")


def http_app(
    catalog: Catalog,
    *,
    config: object = None,
    identify: Identify | None = None,
    profile: str | None = None,
    allowed_hosts: Sequence[str] = LOOPBACK_HOSTS,
    keys: tuple[bytes, ...] = (),
    bus: str | Secret | None = None,
    problems: Callable[[], Sequence[object]] = tuple,
    grace_s: float = SHUTDOWN_GRACE_S,
    console: bool | ConsoleRules = False,
) -> Starlette:
    """Return an ASGI app that serves the catalog's tools: over MCP at `/mcp`, as plain HTTP below `/v1`.

    Callers are identified by `identify`, or by `catalog.identity`, which a config's `identity:` sets. Without either,
    anybody who reaches the app may use the tools of every profile.
    The app's lifespan starts and closes the catalog; an app that mounts it must run that lifespan
    (`app.router.lifespan_context`); otherwise the first request fails with an error that says so.

    Args:
        catalog: the tools.
        config: creates the context of each request: a loaded config, or a callable that takes the `Principal`.
        identify: identifies the caller, sync or async, from the request: `Identified(user=…, space=…, roles=…,
            profiles=…)`, a mapping of these, or `None` to refuse. An exception also refuses the request; an
            `HTTPException` of Starlette or FastAPI is passed on.
        profile: the profile behind `/mcp`; by default `default`, or the first declared. A catalog without profiles
            serves all groups there.
        allowed_hosts: host names that clients may use for the server, without port.
        keys: secrets of 32 bytes or more for sealing the state that clients carry; the same for all workers.
        bus: connects workers with the same keys, `redis://host:port` or `postgresql://host/name`; without it, questions
            to clients of earlier MCP versions, cancellations, events and metrics work within a single worker only.
        problems: returns the problems of a refused config change, for `/healthz` and `/metrics`.
        grace_s: how long running calls may continue after the app is shut down.
        console: whether people find the console at `/console`; `ConsoleRules(client_id=…)` lets them log in at the
            issuer of `identity.jwt`.

    Raises:
        DefinitionError: the profile does not exist; a key is too short; `identify` and `identity:` are both set; a bus
            without keys.
    """
    options = AppOptions(
        config=config, identify=identify, profile=profile, allowed_hosts=allowed_hosts, keys=keys, bus=bus,
        problems=problems, grace_s=grace_s, console=console,
    )  # fmt: skip
    return app_of(catalog, options)


class AppOptions(CarriesCredentials, frozen=True, kw_only=True):
    """The options for serving a catalog over HTTP; see `http_app`."""

    config: object = None
    identify: Identify | None = None
    profile: str | None = None
    allowed_hosts: Sequence[str] = LOOPBACK_HOSTS
    keys: tuple[bytes, ...] = ()
    bus: str | Secret | None = None
    problems: Callable[[], Sequence[object]] = tuple
    grace_s: float = SHUTDOWN_GRACE_S
    has_others: bool = False
    """Whether other workers are known to exist."""
    console: bool | ConsoleRules = False
    login_token: str = ""
    """The secret of the console's one-time login link; empty for none."""
    pending: PendingConfig | None = None
    """The files of the config, which an operator may compare and apply in the console."""
    certificate: ServerCertificate | None = None
    """The certificate that it serves itself, whose end is watched."""


def app_of(catalog: Catalog, options: AppOptions) -> Starlette:
    """Return an ASGI app, as `http_app` does."""
    identify, keys = options.identify, options.keys
    choose_profile(catalog.registry.profiles, options.profile)
    if identify is not None and catalog.identity is not None:
        raise DefinitionError("identify= and the config's `identity:` both say who callers are. Keep one of them.")
    authenticator = Authenticator(catalog, profile=options.profile, identify=identify)
    host_guard = HostGuard(options.allowed_hosts)
    catalog.executor.swap(replace(catalog.executor.ports, is_shared=True))
    sealing = sealing_with(keys, audience=catalog.name)
    has_others = options.has_others or options.bus is not None
    others = Others(bool(keys), has_others, _bus(options.bus, catalog, sealing, keys))
    if has_others:
        _AddedTools(catalog)
    event_hub = EventHub(others)
    event_hub.cancel = catalog.cancel
    gateway = replace(
        gateway_of(catalog, options.config), event_hub=event_hub, credential_watch=CredentialWatch(catalog.registry)
    )
    if keys:
        # Workers on other machines share the keys, but perhaps not the folder.
        catalog.registry.server_id = server_id_of(keys[-1], catalog.name.encode())
        catalog.registry.link_key = hmac.digest(keys[-1], b"pegboard resource links", "sha256")
    if keys and catalog.executor.ports.used_answers is None:
        log.warning(
            "No store of consents: only the worker that asked accepts the answer of a person. Serve with one "
            "worker, or set `consents: {store: …}`."
        )
    endpoint: Endpoint = Endpoint(gateway, host_guard, authenticator=authenticator, sealing=sealing, others=others)
    shared = Api(gateway, host_guard, authenticator, event_hub, sealing)
    api: Routes = Routes(shared)
    part_states = PartStates(lambda: _parts(catalog, others.bus, options.certificate))
    health = Health(
        gateway,
        host_guard,
        authenticator,
        event_hub,
        is_serving=lambda: endpoint.is_running,
        problems=options.problems,
        others=others,
        worker=lambda: sealing.worker,
        part_states=part_states,
    )
    console_rules = options.console if isinstance(options.console, ConsoleRules) else ConsoleRules()
    parts = AppParts(
        catalog=catalog,
        endpoint=endpoint,
        api=api,
        health=health,
        start_page=StartPage(gateway, host_guard, authenticator, has_console=bool(options.console)),
        consent_page=ConsentPage(host_guard),
        connect_page=ConnectPage(
            catalog,
            host_guard,
            authenticator,
            ConnectLogin(sealing),
            console=console_rules if options.console else None,
        ),
        console=ConsoleDoor(
            shared,
            part_states,
            login_token=options.login_token,
            has_own_login=identify is not None,
            has_others=others.are_known,
            rules=console_rules,
            pending=options.pending,
        )
        if options.console
        else None,
        host_guard=host_guard,
        bus=others.bus,
        alert_watch=AlertWatch(catalog, part_states, options.problems),
        document_watch=DocumentWatch(catalog.registry),
    )
    if others.bus is not None:
        ConnectionNews(catalog, others.bus)  # held by the two
    return App(parts, grace_s=options.grace_s)


def _parts(catalog: Catalog, bus: Bus | None, certificate: ServerCertificate | None) -> Iterator[Part]:
    """Yield the probes of a served catalog: its dependencies, the bus to other workers, and the machine."""
    yield from parts_of(catalog)
    yield Part(kind="host", name="clock", where="", check=steady_time.check)
    if certificate is not None:
        yield Part(kind="host", name="certificate", where="", check=certificate.check)
    if bus is not None:
        yield Part(kind="bus", name="server.bus", where="", check=bus.probe)


def _bus(uri: str | Secret | None, catalog: Catalog, sealing: Sealing, keys: tuple[bytes, ...]) -> Bus | None:
    if uri is None:
        return None
    if not keys:
        raise DefinitionError("bus= connects workers with the same keys: give them keys=(…), too.")
    return Bus(bus_transport(uri, name=catalog.name), sealing)


def bus_transport(uri: str | Secret, *, name: str) -> Transport:
    """Return the bus transport of the catalog with this name.

    Raises:
        DefinitionError: the URI is not valid, or a package is not installed.
    """
    text, prefix = uri.reveal() if isinstance(uri, Secret) else uri, f"pegboard:{name}"
    is_postgres = text.startswith(("postgresql://", "postgres://"))
    extra = "postgres" if is_postgres else "redis"
    try:
        if is_postgres:
            return postgres_transport.PostgresTransport(uri, key_prefix=prefix)
        return redis_transport.RedisTransport(uri, key_prefix=prefix)
    except ImportError as error:
        raise DefinitionError(f"The bus {needs_package(error.name, extra)}.") from None


class LifespanError(PegboardError):
    """A request arrived before the app's lifespan ran, so nothing has been started."""

    def __init__(self) -> None:
        super().__init__(
            "The lifespan of this app was not run: an app that mounts `tools = http_app(…)` must enter it in its own "
            "lifespan, `async with tools.router.lifespan_context(tools): yield`."
        )


class _AddedTools:
    """Logs the tools that code adds to a catalog that one of several workers serves, each once."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog, self._logged = catalog, set[str]()
        catalog.on_tool_defined(self._added)

    def _added(self, entry: ToolEntry) -> None:
        name = entry.qualified_id
        if self._catalog.registry.is_served and name not in self._logged and len(self._logged) < ADDED_TOOLS_LOGGED:
            self._logged.add(name)
            log.warning("Tool %r was added in this worker only; other workers do not have it. Add it in each of them, "
                        "or declare a builder whose names come from a shared store.", name)  # fmt: skip


class AppParts(Struct, frozen=True, kw_only=True):
    """The parts of an app: the catalog, the handlers below each path, and the connection to other workers."""

    catalog: Catalog
    endpoint: Endpoint
    api: Routes
    health: Health
    start_page: StartPage
    consent_page: ConsentPage
    connect_page: ConnectPage
    console: ConsoleDoor | None
    host_guard: HostGuard
    bus: Bus | None
    alert_watch: AlertWatch
    document_watch: DocumentWatch


class App(Starlette):
    """The app. Requests for `/mcp` bypass Starlette's middleware and routes, which cost as much as a call."""

    def __init__(self, parts: AppParts, *, grace_s: float) -> None:
        pages = (
            parts.endpoint, parts.start_page, parts.consent_page, parts.connect_page, parts.health, parts.console,
        )  # fmt: skip
        routes = [*(route for page in pages if page is not None for route in page.routes), *parts.api.all()]
        super().__init__(routes=routes, lifespan=self._serving)
        self._console = parts.console
        self._catalog, self._endpoint, self._api, self._health = parts.catalog, parts.endpoint, parts.api, parts.health
        self._host_guard, self._bus, self._alert_watch = parts.host_guard, parts.bus, parts.alert_watch
        self._document_watch = parts.document_watch
        self._grace_s, self._was_started, self._is_traced = grace_s, False, False
        self.state.end_streams = self._end_streams

    @asynccontextmanager
    async def _serving(self, _app: Starlette) -> AsyncGenerator[None]:
        await self._catalog.start(wait_s=0)
        if self._catalog.executor.ports.tasks is not None:
            self._catalog.tasks.wake_soon()
        self._api.events.begin()
        if self._console is not None:
            self._console.begin()
        executor = self._catalog.executor
        async with AsyncExitStack() as stack:
            stack.callback(self._health.begin())
            stack.callback(log_calls(executor))
            await stack.enter_async_context(self._health.exporting())
            # Last of the observers: the others see the span of a call that ends.
            stack.callback(trace_calls(executor))
            self._is_traced = tracer_in_use() is not None
            stack.callback(log_sources(self._catalog.registry))
            stack.push_async_callback(self._catalog.close, grace_s=self._grace_s)
            # Closed last, so that calls that end during the endpoint's shutdown are still published.
            async with nullcontext() if self._bus is None else self._bus.running():
                async with self._endpoint.running(), self._alert_watch.running(), self._document_watch.running():
                    self._was_started = True
                    yield
                await self._health.leave()

    def _redirect_refusal(self, scope: Scope) -> Refusal | None:
        return self._host_guard.refusal([(name, value.strip(b" \t")) for name, value in scope["headers"]])

    def _end_streams(self) -> None:
        self._api.events.end()
        if self._console is not None:
            self._console.end_streams()
        self._endpoint.end_streams()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._was_started and scope["type"] != "lifespan":
            raise LifespanError
        if self._is_traced and scope["type"] == "http":
            with serving_http(scope["headers"]):
                await self._answer(scope, receive, send)
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Also below another path, such as a proxy's; other requests go through the routes.
        if scope["type"] == "http" and scope["path"] == scope.get("root_path", "") + "/mcp":
            scope["path_params"] = {}
            await self._endpoint(scope, receive, send)
            return
        # Starlette redirects an address with an extra slash, on the host that the request names.
        refusal = self._redirect_refusal(scope) if scope["type"] == "http" and scope["path"].endswith("/") else None
        if refusal is not None:
            await problem_reply(problem_of(refusal)).send(send)
        else:
            await super().__call__(scope, receive, send)


def run_http(
    catalog: Catalog,
    config: object = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8420,
    profile: str | None = None,
    identify: Identify | None = None,
    on_ready: Callable[[str], None] | None = None,
    allow_anonymous_from_anywhere: bool = False,
    allowed_hosts: Sequence[str] = (),
    keys: tuple[bytes, ...] = (),
    bus: str | Secret | None = None,
    problems: Callable[[], Sequence[object]] = tuple,
    grace_s: float = SHUTDOWN_GRACE_S,
    console: bool | ConsoleRules = False,
) -> None:
    """Serve the catalog over HTTP until SIGTERM or SIGINT, then let running calls finish for up to `grace_s`.

    A second signal ends it at once. `identify` and `console` work as in `http_app`. `on_ready` receives the address of
    `/mcp` once it answers; by default that address and those of all profiles are printed to standard error.

    Raises:
        DefinitionError: the profile does not exist, or strangers could call at this address.
        OSError: the address cannot be bound.
    """
    is_open = allow_anonymous_from_anywhere or catalog.identity is not None or identify is not None
    options = AppOptions(
        config=config,
        identify=identify,
        profile=profile,
        allowed_hosts=hosts_of(host, allowed_hosts, is_open=is_open),
        keys=keys,
        bus=bus,
        problems=problems,
        grace_s=grace_s,
        console=console,
    )
    serve_http(catalog, options, listening=lambda: bound_to(host, port), on_ready=on_ready)


def console_line(address: str, login_token: str) -> str:
    """Return the line that shows where people find the console, with the one-time login link if there is one."""
    console = f"{address.removesuffix('/mcp')}/console"
    if login_token:
        return f"Console, for people: {console}/login?link={login_token}\n"
    return f"Console, for people: {console}\n"


def serve_http(
    catalog: Catalog,
    options: AppOptions,
    *,
    listening: Callable[[], socket.socket],
    on_ready: Callable[[str], None] | None = None,
    worker: Worker | None = None,
    on_replaced: Callable[[], Coroutine[Any, Any, None]] | None = None,
    front: ProxySettings = NO_PROXY,
) -> None:
    """Serve the catalog on a socket, which is bound after everything else was checked; `worker` if there are several.

    `on_replaced` is called when another worker answers in place of this one, with the current config.

    Raises:
        DefinitionError: the profile does not exist, or a key is too short.
        OSError: the address cannot be bound.
    """
    certificate = None if front.certificate is None else ServerCertificate(front.certificate, front.key)
    app = app_of(catalog, replace(options, has_others=worker is not None, certificate=certificate))

    def say_where(address: str) -> None:
        sys.stderr.write(addresses(address, catalog, profile=options.profile))
        sys.stderr.flush()

    listen(
        app,
        listening=listening(),
        bounds=catalog.registry.bounds,
        on_ready=on_ready or say_where,
        drain=lambda: _drain(catalog, app, options.grace_s),
        grace_s=options.grace_s,
        worker=worker,
        on_replaced=on_replaced,
        front=front,
        tls=None if certificate is None else certificate.context,
    )


async def _drain(catalog: Catalog, app: Starlette, grace_s: float) -> None:
    app.state.end_streams()
    await catalog.executor.close(grace_s=grace_s)


def addresses(address: str, catalog: Catalog, *, profile: str | None, note: str = "") -> str:
    """Return the lines that show the server's addresses: `/mcp`, and one per profile."""
    profiles = catalog.registry.profiles
    chosen = choose_profile(profiles, profile)
    width = max(map(len, profiles), default=0)
    return f"Serving MCP on {address}{note}\n" + "".join(
        f"  {address}/{name:<{width}}  profile {name!r}{', also at /mcp' if name == chosen else ''}\n"
        for name in profiles
    )
