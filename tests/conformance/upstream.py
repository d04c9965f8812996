"""What the client suite drives: a catalog with one MCP server as its source, whose tools are listed and called.

    upstream.py URL

The suite gives the scenario in MCP_CONFORMANCE_SCENARIO, and what else one needs to know in MCP_CONFORMANCE_CONTEXT.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2

from pegboard import Catalog, ToolContext
from pegboard.connections import connections
from pegboard.connections.auth_settings import AuthSettings
from pegboard.connections.connections import Connections
from pegboard.connections.exchanged_credentials import ExchangedCredentials
from pegboard.connections.token_auth import TokenAuth
from pegboard.connections.upstream_credentials import PersonalCredentials, PersonCredentials, ServiceCredentials
from pegboard.core.view import View
from pegboard.model.caller import Caller
from pegboard.model.result import ToolResult
from pegboard.model.secret import Secret
from pegboard.sources.mcp.personal_source import PersonalMcpSource
from pegboard.sources.mcp.server_settings import ServerSettings
from pegboard.sources.mcp.supervised_source import McpSource

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT: Any = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
ABOUT_US = "https://conformance-test.local/client-metadata.json"
EXAMPLES = {"integer": 5, "number": 5, "string": "hello", "boolean": True, "array": [], "object": {}, "null": None}


ME = Caller(user_id="me")
BROWSER = "the-cookie-of-a-browser"
AGREEMENTS = 2  # how often somebody agrees during one call; the suite refuses clients that go on for ever


class Person:
    """Somebody with a browser who opens every link and agrees to everything."""

    me = ME
    credentials: PersonCredentials

    def __init__(self, url: str) -> None:
        key = Secret("a-key-of-connections-that-is-long-enough")
        # The suite names the metadata document of its clients, and asks nobody for it.
        connections.CLIENT_DOCUMENT_PATH = urlsplit(ABOUT_US).path
        store = Path(tempfile.mkdtemp(), "connections.db")
        self.connections = Connections.open(f"sqlite:{store}", keys=[key], public_url=ABOUT_US.rpartition("/")[0])
        named = {}
        if "client_id" in CONTEXT:
            secret = Secret(CONTEXT["client_secret"])
            named = {"client_id": CONTEXT["client_id"], "client_secret": secret, "issuer": CONTEXT["issuer"]}
        settings = AuthSettings(
            source="up", mode="user", server_url=url, hosts=("localhost", "127.0.0.1"), **named
        )  # fmt: skip
        self.credentials = PersonalCredentials(self.connections, settings)

    async def connect(self, link: str) -> None:
        """Open a link, agree, log in, and come back."""
        start = await self.connections.agree(link.rpartition("/")[2], browser=BROWSER)
        async with httpx2.AsyncClient() as browser:
            back = (await browser.get(start)).headers["location"]
        words = {key: values[0] for key, values in parse_qs(urlsplit(back).query).items()}
        await self.connections.finish(
            words["state"], browser=BROWSER, code=words.get("code", ""), iss=words.get("iss"),
            error=words.get("error", ""),
        )  # fmt: skip

    async def call(self, view: View, name: str, args: dict[str, Any]) -> ToolResult:
        """Call a tool; agree wherever a link is in the answer."""
        for _ in range(AGREEMENTS):
            result = await view.renewed().call(name, args)
            link = None if result.error is None else result.error.details.get("url")
            if not isinstance(link, str):
                return result
            await self.connect(link)
        return await view.renewed().call(name, args)


def arguments(schema: Any) -> dict[str, Any]:
    """Return arguments that fit a simple schema."""
    return {name: EXAMPLES[said.get("type", "string")] for name, said in schema.get("properties", {}).items()}


class Employee(Person):
    """Somebody who came with a token of the company's login, and connects nothing."""

    def __init__(self, url: str, issuer: str) -> None:
        login = AuthSettings(
            source="up", mode="exchange", server_url=CONTEXT["idp_issuer"], issuer=CONTEXT["idp_issuer"],
            client_id=CONTEXT["idp_client_id"], client_secret=Secret("the suite checks none"),
        )  # fmt: skip
        settings = AuthSettings(
            source="up", mode="id_jag", server_url=url, issuer=issuer, client_id=CONTEXT["client_id"],
            client_secret=Secret(CONTEXT["client_secret"]), login=login,
        )  # fmt: skip
        self.credentials = ExchangedCredentials(settings)
        self.me = Caller(user_id="me", subject_token=Secret(CONTEXT["idp_id_token"]))


def service(url: str, issuer: str) -> ServerSettings:
    """Return a server that we call with a token of our own, for everybody."""
    proof: dict[str, Any] = {
        key: Secret(CONTEXT[name])
        for key, name in (("private_key", "private_key_pem"), ("client_secret", "client_secret"))
        if name in CONTEXT
    }
    auth = AuthSettings(
        source="up", mode="client_credentials", server_url=url, issuer=issuer, client_id=CONTEXT["client_id"],
        hosts=("localhost", "127.0.0.1"), **proof,
    )  # fmt: skip
    return ServerSettings(name="up", transport="http", url=url, trust="any", auth=TokenAuth(ServiceCredentials(auth)))


async def issuer_of(url: str) -> str:
    """Return the issuer that an operator would find in the metadata of the service, to name it."""
    parts = urlsplit(url)
    async with httpx2.AsyncClient() as client:
        place = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}"
        return (await client.get(place)).json()["authorization_servers"][0]


async def main(url: str) -> None:
    is_service = SCENARIO.startswith("auth/client-credentials")
    has_own = "idp_issuer" in CONTEXT or is_service
    person = Person(url) if SCENARIO.startswith("auth/") and not has_own else None
    if "idp_issuer" in CONTEXT:
        person = Employee(url, await issuer_of(url))
    settings = ServerSettings(
        name="up", transport="http", url=url, trust="any" if person is None else "first_use", timeout_s=60
    )
    if is_service:
        settings = service(url, await issuer_of(url))
    source = McpSource(settings) if person is None else PersonalMcpSource(settings, credentials=person.credentials)
    catalog = Catalog()
    catalog.add_source(source)
    await catalog.start()
    try:
        await source.listed()
        ctx = (
            ToolContext(caller=person.me, budget=None, approve=lambda request: True)
            if person
            else ToolContext(budget=None, approve=lambda request: True)
        )
        view = catalog.view(ctx)
        if person is not None:
            print(await person.call(view, "up__connect", {}))
            view = await view.renewed().prepare()
        print(source.state(), source.rejected)
        # A null that the tool's own schema refuses is never sent; leaving it out asks the same of the headers.
        calls = [
            (f"up__{call['name']}", {key: value for key, value in call["arguments"].items() if value is not None})
            for call in CONTEXT.get("toolCalls", ())
        ]
        offered = [each for each in view.tools() if each.spec.name != "connect"]
        for name, args in calls or [(each.wire_name, arguments(each.spec.input_schema)) for each in offered]:
            print(name, await (view.call(name, args) if person is None else person.call(view, name, args)))
    finally:
        await catalog.close(grace_s=0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
