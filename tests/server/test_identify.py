"""Identify: a framework's own login decides who calls, for what space, in which roles and through which profiles."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI, HTTPException, Request
from fastapi.security import HTTPBearer
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser
from starlette.middleware.authentication import AuthenticationMiddleware

from pegboard import Catalog, DefinitionError, Identified, Profile, ToolContext, http_app
from pegboard.auth.rules import IdentityRules
from tests.server.asgi import ask, send_raw
from tests.server.doors import inside

PEOPLE = {
    "ann-token": Identified(user="ann", space="s1", roles=("operator",), profiles=("admin", "chat")),
    "bob-token": Identified(user="bob", space="s2", profiles=("chat",)),
}


def shop(*, with_profiles: bool = True) -> Catalog:
    catalog = Catalog("shop")

    @catalog.tool
    def whoami(ctx: ToolContext) -> dict[str, Any]:
        """Say who asks."""
        return {"user": ctx.user_id, "space": ctx.space_id, "roles": sorted(ctx.roles)}

    @catalog.tool(groups="admin")
    def wipe() -> str:
        """Wipe it."""
        return "wiped"

    if with_profiles:
        catalog.profile(Profile(name="chat", include=("core",), exposure="direct"))
        catalog.profile(Profile(name="admin", include=("core", "admin"), exposure="direct"))
    return catalog


def by_token(request: Request) -> Identified | None:
    return PEOPLE.get(request.headers.get("authorization", "").removeprefix("Bearer "))


def fastapi_with(identify: Any, catalog: Catalog | None = None) -> FastAPI:
    """Return somebody's FastAPI app with our tools mounted in it."""
    tools = http_app(catalog or shop(), identify=identify)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncGenerator[None]:
        async with tools.router.lifespan_context(tools):
            yield

    app = FastAPI(lifespan=lifespan)
    app.mount("/tools", tools)
    return app


@asynccontextmanager
async def client_of(app: FastAPI) -> AsyncGenerator[httpx2.AsyncClient]:
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://127.0.0.1:8420") as client,
    ):
        yield client


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def test_each_caller_of_a_fastapi_app_has_their_own_user_space_roles_and_profiles() -> None:
    async with client_of(fastapi_with(by_token)) as client:

        async def call(token: str, tool: str, profile: str = "") -> httpx2.Response:
            query = {"profile": profile} if profile else {}
            return await client.post(f"/tools/v1/tools/{tool}/call", json={}, headers=bearer(token), params=query)

        ann, bob = [(await call(token, "whoami")).json()["structuredContent"] for token in PEOPLE]
        assert ann == {"user": "ann", "space": "s1", "roles": ["operator"]}
        assert bob == {"user": "bob", "space": "s2", "roles": []}
        assert (await call("ann-token", "wipe", "admin")).status_code == 200
        # `?profile=admin` is for those alone who have it; to others it does not exist, as little as any other.
        denied, unknown = await call("bob-token", "wipe", "admin"), await call("bob-token", "wipe", "nope")
        assert (denied.status_code, denied.json()["detail"]) == (404, unknown.json()["detail"])
        assert (await call("bob-token", "wipe")).status_code == 404


async def test_it_holds_over_mcp_and_for_operators_too() -> None:
    catalog = shop()
    app = http_app(catalog, identify=by_token)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://127.0.0.1:8420") as client,
    ):

        async def tools(token: str, path: str) -> Any:
            params = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
                                "io.modelcontextprotocol/clientCapabilities": {}}}  # fmt: skip
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}
            heads = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2026-07-28",
                     "mcp-method": "tools/list", **bearer(token)}  # fmt: skip
            answer = await client.post(path, json=body, headers=heads)
            return answer.status_code, [tool["name"] for tool in answer.json().get("result", {}).get("tools", ())]

        assert await tools("ann-token", "/mcp/admin") == (200, ["whoami", "wipe"])
        assert await tools("ann-token", "/mcp") == (200, ["whoami", "wipe"])
        assert await tools("bob-token", "/mcp") == (200, ["whoami"])
        assert (await tools("bob-token", "/mcp/admin"))[0] == 404
        assert (await tools("stranger", "/mcp"))[0] == 401
        assert (await client.get("/metrics", headers=bearer("ann-token"))).status_code == 200
        assert (await client.get("/metrics", headers=bearer("bob-token"))).status_code == 404
        why = [(await client.get("/v1/tools/wipe/why?profile=chat", headers=bearer(t))).json()["code"] for t in PEOPLE]
        assert why == ["group", "unknown"]


class Backend(AuthenticationBackend):
    """The login that an app has already: a middleware that fills `request.user`."""

    async def authenticate(self, conn: Any) -> Any:
        name = conn.cookies.get("session")
        return None if name is None else (AuthCredentials(["authenticated"]), SimpleUser(name))


async def test_the_apps_own_user_is_at_hand() -> None:
    async def identify(request: Request) -> dict[str, Any] | None:
        await asyncio.sleep(0)
        user = request.user
        return {"user": user.display_name, "profiles": ["chat"]} if user.is_authenticated else None

    app = fastapi_with(identify)
    app.add_middleware(AuthenticationMiddleware, backend=Backend())
    async with client_of(app) as client:
        called = await client.post("/tools/v1/tools/whoami/call", json={}, headers={"cookie": "session=eve"})
        assert called.json()["structuredContent"]["user"] == "eve"
        assert (await client.post("/tools/v1/tools/whoami/call", json={})).status_code == 401


async def test_fastapis_own_refusal_is_passed_on() -> None:
    login = HTTPBearer()

    async def identify(request: Request) -> Identified:
        credentials = await login(request)
        assert credentials is not None
        if credentials.credentials != "good":
            raise HTTPException(status_code=403, detail="Not you.", headers={"x-why": "because"})
        return Identified(user="ann", profiles=("chat",))

    async with client_of(fastapi_with(identify)) as client:

        async def answer(**headers: str) -> httpx2.Response:
            return await client.get("/tools/v1/tools", headers=headers)

        missing, wrong, good = await answer(), await answer(**bearer("bad")), await answer(**bearer("good"))
        assert (missing.status_code, missing.headers["www-authenticate"]) == (401, "Bearer")
        assert (wrong.status_code, wrong.json()["detail"], wrong.headers["x-why"]) == (403, "Not you.", "because")
        assert good.status_code == 200


def raising(error: BaseException) -> Callable[[Request], Any]:
    def identify(_request: Request) -> Any:
        raise error

    return identify


async def never(_request: Request) -> Any:
    await asyncio.Event().wait()


BROKEN: dict[str, tuple[Any, int]] = {
    "nobody": (lambda request: None, 401),
    "it raises": (raising(RuntimeError("password=hunter2")), 503),
    "it raises a key error": (raising(KeyError("authorization")), 503),
    "a status that is not a refusal": (raising(HTTPException(200)), 403),
    "a redirect to a login page": (raising(HTTPException(307, headers={"location": "/login"})), 403),
    "a user without a name": (lambda request: Identified(user="", profiles=("chat",)), 503),
    "a user of another type": (lambda request: {"user": 7, "profiles": ["chat"]}, 503),
    "an unknown field": (lambda request: {"user": "ann", "profile": "chat"}, 503),
    "true": (lambda request: True, 503),
    "a name alone": (lambda request: "ann", 503),
    "roles of another type": (lambda request: {"user": "ann", "roles": [1], "profiles": ["chat"]}, 503),
    "a space of another type": (lambda request: {"user": "ann", "space": 1, "profiles": ["chat"]}, 503),
    "no profile": (lambda request: Identified(user="ann"), 403),
    "a profile that does not exist": (lambda request: Identified(user="ann", profiles=("chat", "root")), 403),
    "it never answers": (never, 503),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
async def test_whatever_goes_wrong_in_it_nobody_is_let_in(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    identify, status = BROKEN[case]
    monkeypatch.setattr("pegboard.server.identify.IDENTIFY_S", 0.05)
    catalog = shop()
    ran: list[str] = []
    catalog.before("*")(lambda call: ran.append(call.name))  # pyright: ignore[reportUnknownLambdaType] - a hook
    app = http_app(catalog, identify=identify)
    async with inside(app) as client:
        for method, path in [
            ("GET", "/v1/tools"),
            ("POST", "/v1/tools/whoami/call"),
            ("POST", "/mcp"),
            ("GET", "/metrics"),
        ]:
            answer = await client.request(
                method, path, headers={"accept": "application/json, text/event-stream"}, json={}
            )
            assert answer.status_code == status, (path, answer.text)
            assert "hunter2" not in answer.text
    assert ran == []


async def test_a_catalog_without_profiles_shows_all_to_whoever_is_known() -> None:
    app = http_app(shop(with_profiles=False), identify=lambda request: {"user": "ann"})
    async with inside(app) as client:
        assert [tool["name"] for tool in (await client.get("/v1/tools")).json()["tools"]] == ["whoami", "wipe"]


async def test_no_credential_gets_behind_it() -> None:
    catalog, seen = shop(), list[str]()

    def context(principal: Any) -> ToolContext:
        seen.append(repr(principal))
        return ToolContext(user_id=principal.identity.user)

    app = http_app(catalog, identify=by_token, config=context)
    async with inside(app) as client:
        await client.get("/v1/tools", headers=bearer("ann-token"))

    # What reports errors and slow requests around it prints the headers that are left.
    async def around(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)
        seen.append(repr(scope["headers"]))

    credentials = [(b"authorization", b"Bearer ann-token"), (b"cookie", b"s=ann-token"), (b"host", b"127.0.0.1")]
    async with app.router.lifespan_context(app):
        assert (await send_raw(around, b"", credentials, path="/v1/tools", method="GET"))[0] == 200
    assert "host" in seen[-1]
    assert "ann-token" not in "".join(seen)


async def test_a_session_belongs_to_one_person() -> None:
    owners = {who.owner for who in (*PEOPLE.values(), Identified(user="ann", space="s2"), Identified(user="ann:s1"))}
    assert len(owners) == 4


def test_two_answers_to_who_asks_are_one_too_many() -> None:
    catalog = shop()
    catalog.identity = IdentityRules()
    with pytest.raises(DefinitionError, match="both say who callers are"):
        http_app(catalog, identify=by_token)


async def test_a_forgotten_lifespan_is_told_at_the_first_request() -> None:
    app = http_app(shop(), identify=by_token)
    for path in ("/mcp", "/mcp/chat"):
        with pytest.raises(Exception, match=r"async with tools.router.lifespan_context\(tools\)"):
            await ask(app, "tools/list", {}, path=path)
    bare = FastAPI()
    bare.mount("/tools", app)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=bare), base_url="http://127.0.0.1:8420") as client:
        with pytest.raises(Exception, match="The lifespan of this app was not run"):
            await client.get("/tools/v1/tools")
