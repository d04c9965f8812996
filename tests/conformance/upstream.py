"""What the client suite drives: a catalog with one MCP server as its source, whose tools are listed and called.

    upstream.py URL

The suite gives the scenario in MCP_CONFORMANCE_SCENARIO, and what else one needs to know in MCP_CONFORMANCE_CONTEXT.
"""

import asyncio
import json
import os
import sys
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from pegboard import Catalog, ToolContext
from pegboard.sources.mcp.server_settings import ServerSettings
from pegboard.sources.mcp.supervised_source import McpSource

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT: Any = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
BACK = "http://localhost:3000/callback"
ABOUT_US = "https://conformance-test.local/client-metadata.json"
EXAMPLES = {"integer": 5, "number": 5, "string": "hello", "boolean": True, "array": [], "object": {}, "null": None}


class Memory:
    """Where tokens are kept: nowhere else."""

    def __init__(self, client: OAuthClientInformationFull | None) -> None:
        self.tokens: OAuthToken | None = None
        self.client = client

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Person:
    """Somebody at a browser who agrees to everything."""

    def __init__(self) -> None:
        self.came_back = ""

    async def visit(self, url: str) -> None:
        async with httpx2.AsyncClient() as browser:
            self.came_back = (await browser.get(url)).headers["location"]

    async def tell(self) -> AuthorizationCodeResult:
        said = {key: values[0] for key, values in parse_qs(urlsplit(self.came_back).query).items()}
        return AuthorizationCodeResult(code=said["code"], state=said.get("state"), iss=said.get("iss"))


def oauth(url: str) -> OAuthClientProvider:
    known = None
    if "client_id" in CONTEXT:
        known = OAuthClientInformationFull(
            client_id=CONTEXT["client_id"],
            client_secret=CONTEXT["client_secret"],
            redirect_uris=[BACK],  # type: ignore[list-item] - read by pydantic
            issuer=CONTEXT.get("issuer"),
            token_endpoint_auth_method="client_secret_basic",
        )
    person = Person()
    return OAuthClientProvider(
        server_url=url,
        client_metadata=OAuthClientMetadata(client_name="pegboard", redirect_uris=[BACK]),  # type: ignore[list-item] - read by pydantic
        storage=Memory(known),
        redirect_handler=person.visit,
        callback_handler=person.tell,
        client_metadata_url=ABOUT_US,
    )


def arguments(schema: Any) -> dict[str, Any]:
    """Return arguments that fit a simple schema."""
    return {name: EXAMPLES[said.get("type", "string")] for name, said in schema.get("properties", {}).items()}


async def main(url: str) -> None:
    auth = oauth(url) if SCENARIO.startswith("auth/") else None
    settings = ServerSettings(
        name="up",
        transport="http",
        url=url,
        trust="any",
        timeout_s=60,
        auth=auth,
        auth_hosts=("localhost", "127.0.0.1"),
    )
    catalog, source = Catalog(), McpSource(settings)
    catalog.add_source(source)
    await catalog.start()
    try:
        await source.listed()
        print(source.state(), source.rejected)
        view = catalog.view(ToolContext(budget=None, approve=lambda request: True))
        # A null that the tool's own schema refuses is never sent; leaving it out asks the same of the headers.
        calls = [
            (f"up__{call['name']}", {key: value for key, value in call["arguments"].items() if value is not None})
            for call in CONTEXT.get("toolCalls", ())
        ]
        for name, args in calls or [(each.wire_name, arguments(each.spec.input_schema)) for each in view.tools()]:
            print(name, await view.call(name, args))
    finally:
        await catalog.close(grace_s=0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
