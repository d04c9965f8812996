"""Toy upstreams: an MCP server and an HTTP API on loopback that answer only with a toy issuer's token, and say whose.

Every person has data of their own, with their name in it (`mail_of`), and each a tool that nobody else is listed.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from mcp.server.lowlevel import Server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    GetPromptRequestParams,
    GetPromptResult,
    Icon,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceLink,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
    Tool,
)
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.auth.parts import listening
from tests.connections.toy_issuer import Token, ToyIssuer

NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
TEXT: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def mail_of(user: str) -> str:
    """Return what only this person may ever read: a marker to search for in every byte."""
    return f"canary-mail-of-{user}"


@dataclass
class UpstreamSwitches:
    """What an upstream does differently."""

    lists_without_token: bool = False
    """Lists and handshakes need no token; calls do."""
    says_metadata: bool = True
    """Whether a 401 names the metadata; it is served either way."""
    has_metadata: bool = True
    issuer: str | None = None
    """The metadata names this issuer instead."""
    resource: str | None = None
    """The metadata names this resource instead."""
    status: int | None = None
    """Answers this to everything."""
    links: bool = False
    """Whether mail has an attachment, as a link to a resource that is not listed."""
    repeats_token: bool = False
    """Whether its lists and answers have the caller's token in every text."""
    description: dict[str, str] = field(default_factory=dict)
    """How the list describes `whoami` to each person, where it differs."""


class Upstream:
    """What both upstreams share: the check of the token, the metadata (RFC 9728), and what was counted.

    `hits` has requests (`requests`), refusals (`401`, `403`), and calls by person (`calls of ann`). `crossed` lists
    the requests that came in a session of somebody else: it must stay empty.
    """

    path = ""

    def __init__(self, issuer: ToyIssuer, *, scopes: tuple[str, ...] = ("read",)) -> None:
        self.issuer, self.scopes = issuer, scopes
        self.origin = self.resource = ""
        self.switches = UpstreamSwitches()
        self.hits: Counter[str] = Counter()
        self.crossed: list[str] = []
        self.authorizations: list[str] = []
        """The `Authorization` of every request that had one."""
        self.entered, self.go_on = asyncio.Event(), asyncio.Event()
        """A call of `wait` has begun; it may end."""
        self.said: list[tuple[str, str]] = []
        """Who wrote what."""

    @property
    def metadata_url(self) -> str:
        return f"{self.origin}/.well-known/oauth-protected-resource{self.path}"

    async def _metadata(self, _request: Request) -> Response:
        self.hits["metadata"] += 1
        if not self.switches.has_metadata:
            return Response(status_code=404)
        return JSONResponse({
            "resource": self.switches.resource or self.resource,
            "authorization_servers": [self.switches.issuer or self.issuer.url],
            "scopes_supported": list(self.scopes),
            "bearer_methods_supported": ["header"],
        })  # fmt: skip

    def _token_of(self, headers: Any) -> Token | None:
        kind, _, access = headers.get("authorization", "").partition(" ")
        if access:
            self.authorizations.append(headers["authorization"])
        token = self.issuer.good(access) if kind.lower() == "bearer" else None
        return token if token is not None and token.resource in {None, self.resource} else None

    def _unknown(self, *, has_token: bool) -> Response:
        self.hits["401"] += 1
        parts = ['error="invalid_token"'] if has_token else []
        if self.switches.says_metadata:
            parts.append(f'resource_metadata="{self.metadata_url}"')
        parts.append(f'scope="{" ".join(self.scopes)}"')
        return JSONResponse(
            {"error": "invalid_token"}, 401, {"www-authenticate": f"Bearer {', '.join(parts)}" if parts else "Bearer"}
        )

    def _needs_more(self, scope: str) -> Response:
        self.hits["403"] += 1
        says = f'Bearer error="insufficient_scope", scope="{scope}", resource_metadata="{self.metadata_url}"'
        return JSONResponse({"error": "insufficient_scope"}, 403, {"www-authenticate": says})


class _Guard:
    """Checks every request for `/mcp`, and notes whose session it came in."""

    def __init__(self, upstream: McpUpstream, app: ASGIApp) -> None:
        self._upstream, self._app = upstream, app
        self._sessions: dict[str, str] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != self._upstream.path:
            await self._app(scope, receive, send)
            return
        request, upstream = Request(scope, receive), self._upstream
        body = await request.body()
        message = json.loads(body) if body else {}
        upstream.hits["requests"] += 1
        token = upstream._token_of(request.headers)
        refusal = self._refusal(request, message, token)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        user = "nobody" if token is None else token.user
        session = request.headers.get("mcp-session-id")
        if session is not None and self._sessions.setdefault(session, user) != user:
            upstream.crossed.append(f"{user} in the session of {self._sessions[session]}")
        scope.setdefault("state", {})["user"] = user
        is_read = False

        async def again() -> Message:
            nonlocal is_read
            if is_read:
                return await receive()
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def noting(answer: Message) -> None:
            if answer["type"] == "http.response.start":
                for name, value in answer["headers"]:
                    if name.lower() == b"mcp-session-id":
                        self._sessions.setdefault(value.decode(), user)
            await send(answer)

        await self._app(scope, again, noting)

    def _refusal(self, request: Request, message: dict[str, Any], token: Token | None) -> Response | None:
        upstream, method = self._upstream, message.get("method")
        if upstream.switches.status is not None:
            return Response("broken", upstream.switches.status)
        if token is None:
            is_open = upstream.switches.lists_without_token and method != "tools/call"
            return None if is_open else upstream._unknown(has_token="authorization" in request.headers)
        name = message.get("params", {}).get("name") if method == "tools/call" else None
        if name == "write" and "write" not in token.scope.split():
            return upstream._needs_more("write")
        return None


class McpUpstream(Upstream):
    """An MCP server at `/mcp`, of both eras, whose tools say who calls: whoami, read_mail, wait, write, only_for_…"""

    path = "/mcp"

    def _server(self) -> Server[Any]:
        def repeated(ctx: Any) -> str:
            return f" {ctx.request.headers['authorization']}" if self.switches.repeats_token else ""

        async def list_tools(ctx: Any, _params: Any) -> ListToolsResult:
            user = ctx.request.state.user
            self.hits[f"lists of {user}"] += 1
            whoami = self.switches.description.get(user, "Say who calls.") + (repeated(ctx) if user != "nobody" else "")
            tools = [
                Tool(name="whoami", description=whoami, input_schema=NO_ARGUMENTS),
                Tool(name="read_mail", description="Read the caller's mail.", input_schema=NO_ARGUMENTS),
                Tool(name="wait", description="Wait until told to go on.", input_schema=NO_ARGUMENTS),
                Tool(name="write", description="Write a mail.", input_schema=TEXT),
            ]
            if user != "nobody":
                about = f"A tool of {user} alone: {mail_of(user)}."
                tools.append(Tool(name=f"only_for_{user}", description=about, input_schema=NO_ARGUMENTS))
            return ListToolsResult(tools=tools)

        async def call_tool(ctx: Any, params: CallToolRequestParams) -> CallToolResult:
            user = ctx.request.state.user
            self.hits[f"calls of {user}"] += 1
            text = await self._answer(user, params.name, params.arguments or {})
            linked = ResourceLink(name="attachment", uri=f"mail://attachment/of-{user}")
            extra = [linked] if params.name == "read_mail" and self.switches.links else []
            return CallToolResult(content=[TextContent(text=text), *extra])

        async def list_resources(ctx: Any, _params: Any) -> ListResourcesResult:
            user = ctx.request.state.user
            self.hits[f"resource lists of {user}"] += 1
            same = Resource(uri="mail://help", name="help", description="How mail works.")
            inbox = Resource(uri="mail://inbox", name="inbox", description=f"The inbox of {user}: {mail_of(user)}.")
            own = Resource(uri=f"mail://folder/{user}", name=f"only_for_{user}")
            resources = [same, inbox, own]
            if token := repeated(ctx):
                icon = Icon(src=f"https://icons.example/{token.split()[1]}.png")
                texts: Any = {
                    "title": f"With{token}",
                    "description": f"With{token}",
                    "_meta": {"a.example/token": token},
                }
                resources += [
                    Resource(
                        uri="mail://repeated", name="repeated", mime_type=f"text/x;{token}", icons=[icon], **texts
                    ),
                    Resource(uri=f"mail://by/{token.split()[1]}", name="by_token"),
                ]
            return ListResourcesResult(resources=resources)

        async def list_templates(_ctx: Any, _params: Any) -> ListResourceTemplatesResult:
            return ListResourceTemplatesResult(
                resource_templates=[ResourceTemplate(uri_template="mail://search/{word}", name="search")]
            )

        async def read_resource(ctx: Any, params: ReadResourceRequestParams) -> ReadResourceResult:
            text = f"{params.uri}: {mail_of(ctx.request.state.user)}{repeated(ctx)}"
            return ReadResourceResult(contents=[TextResourceContents(uri=params.uri, text=text)])

        async def list_prompts(ctx: Any, _params: Any) -> ListPromptsResult:
            user = ctx.request.state.user
            about = PromptArgument(name="topic", required=True, description=f"The topic.{repeated(ctx)}")
            text = f"Answer as {user}, {mail_of(user)}.{repeated(ctx)}"
            answer = Prompt(name="answer", title=f"Answer{repeated(ctx)}", description=text, arguments=[about])
            return ListPromptsResult(prompts=[answer, Prompt(name=f"only_for_{user}")])

        async def get_prompt(ctx: Any, params: GetPromptRequestParams) -> GetPromptResult:
            text = f"{params.name} {params.arguments or {}} {mail_of(ctx.request.state.user)}{repeated(ctx)}"
            return GetPromptResult(messages=[PromptMessage(role="user", content=TextContent(text=text))])

        async def complete(ctx: Any, params: CompleteRequestParams) -> CompleteResult:
            return CompleteResult(
                completion=Completion(
                    values=[f"{params.argument.value} {mail_of(ctx.request.state.user)}{repeated(ctx)}"]
                )
            )

        return Server(
            "toy", on_list_tools=list_tools, on_call_tool=call_tool, on_list_resources=list_resources,
            on_list_resource_templates=list_templates, on_read_resource=read_resource, on_list_prompts=list_prompts,
            on_get_prompt=get_prompt, on_completion=complete,
        )  # fmt: skip

    async def _answer(self, user: str, name: str, arguments: dict[str, Any]) -> str:
        if name == "read_mail":
            return mail_of(user)
        if name == "write":
            self.said.append((user, arguments["text"]))
        if name == "wait":
            self.entered.set()
            await self.go_on.wait()
        return f"You are {user}."

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[McpUpstream]:
        """Serve on loopback for the time of the block; its URL is `resource`."""
        server = self._server()
        app = server.streamable_http_app(json_response=True)
        # The app's own paths first: the metadata is what anybody may read.
        app.router.routes.insert(0, Route("/.well-known/oauth-protected-resource/mcp", self._metadata))
        guarded: Any = _Guard(self, app)
        async with app.router.lifespan_context(app), listening(guarded) as self.origin:
            self.resource = f"{self.origin}/mcp"
            self.issuer.resources.add(self.resource)
            yield self


class ApiUpstream(Upstream):
    """An HTTP API with an OpenAPI document at `/openapi.json`: getMe, readMail, writeMail."""

    def document(self) -> dict[str, Any]:
        """Return the document, which says how callers prove who they are."""
        answer = {"200": {"description": "it", "content": {"application/json": {"schema": {"type": "object"}}}}}
        body = {"required": True, "content": {"application/json": {"schema": TEXT}}}
        flow = {
            "authorizationUrl": f"{self.issuer.url}/authorize",
            "tokenUrl": f"{self.issuer.url}/token",
            "scopes": {"read": "read mail", "write": "write mail"},
        }
        return {
            "openapi": "3.1.0",
            "info": {"title": "Toy mail", "version": "1"},
            "servers": [{"url": self.origin}],
            "security": [{"login": ["read"]}],
            "paths": {
                "/me": {"get": {"operationId": "getMe", "summary": "Say who calls", "responses": answer}},
                "/mail": {
                    "get": {"operationId": "readMail", "summary": "Read the caller's mail", "responses": answer},
                    "post": {"operationId": "writeMail", "summary": "Write a mail", "requestBody": body,
                             "security": [{"login": ["write"]}], "responses": answer},
                },
            },
            "components": {"securitySchemes": {"login": {"type": "oauth2", "flows": {"authorizationCode": flow}}}},
        }  # fmt: skip

    async def _document(self, _request: Request) -> Response:
        return JSONResponse(self.document())

    async def _answer(self, request: Request) -> Response:
        self.hits["requests"] += 1
        if self.switches.status is not None:
            return Response("broken", self.switches.status)
        token = self._token_of(request.headers)
        if token is None:
            return self._unknown(has_token="authorization" in request.headers)
        if request.method == "POST":
            if "write" not in token.scope.split():
                return self._needs_more("write")
            self.said.append((token.user, (await request.json())["text"]))
        self.hits[f"calls of {token.user}"] += 1
        return JSONResponse(
            {"user": token.user} | ({"mail": mail_of(token.user)} if request.url.path == "/mail" else {})
        )

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[ApiUpstream]:
        """Serve on loopback for the time of the block; its URL is `resource`."""
        routes = [
            Route("/.well-known/oauth-protected-resource", self._metadata),
            Route("/openapi.json", self._document),
            Route("/me", self._answer),
            Route("/mail", self._answer, methods=["GET", "POST"]),
        ]
        async with listening(Starlette(routes=routes)) as self.origin:
            self.resource = self.origin
            self.issuer.resources.add(self.resource)
            yield self
