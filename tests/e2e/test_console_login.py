"""Log in to the console in a real browser: our page, the issuer's page with PKCE, and the page that was wanted."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from pegboard import Catalog, Profile
from pegboard.auth.rules import ConsoleRules, IdentityRules, TokenRules
from pegboard.server.app import AppOptions, app_of
from tests.auth.parts import rule
from tests.connections.toy_issuer import ToyIssuer
from tests.e2e.test_real_clients import CLIENTS
from tests.ports import free_port
from tests.server.doors import served
from tests.timing import PATIENCE_S

pytestmark = pytest.mark.e2e
AUDIENCE = "https://tools.example.com/mcp"


async def browsed(**told: str) -> dict[str, Any]:
    """Let a person log in with a browser; return what it saw, see `console_login.mjs`."""
    pipe = asyncio.subprocess.PIPE
    words = ("node", "console_login.mjs", json.dumps(told))
    process = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=pipe, cwd=CLIENTS)
    printed, errors = await asyncio.wait_for(process.communicate(), 2 * PATIENCE_S)
    assert process.returncode == 0, errors.decode()
    return json.loads(printed)


async def test_a_person_logs_in_at_the_issuer_and_gets_to_the_wanted_page() -> None:
    port = free_port()
    address = f"http://127.0.0.1:{port}/console"
    issuer = ToyIssuer(scopes=("openid", "tools"))
    async with issuer.running():
        issuer.switches.jwts_for, issuer.switches.asks = AUDIENCE, True
        issuer.resources.add(AUDIENCE)
        issuer.add_client("console", redirects=(f"{address}/login/callback",), secret=None)
        catalog = Catalog("office")
        catalog.tool(name="greet", groups="core")(lambda: "hello")
        catalog.profile(Profile(name="desk", include=("core",)))
        catalog.identity = IdentityRules(
            tokens=TokenRules(issuer=issuer.url, audience=AUDIENCE, jwks_url=f"{issuer.url}/jwks"),
            map=(rule(claim={"sub": "ann"}, user="{sub}", roles=("operator",), profiles=("desk",)),),
        )
        wanted = f"{address}/tools/greet?profile=desk"
        async with served(app_of(catalog, AppOptions(console=ConsoleRules(client_id="console"))), port=port):
            seen = await browsed(page=wanted, issuer=issuer.url, who="ann")
    assert seen["errors"] == []
    assert f"Log in at {urlsplit(issuer.url).netloc}" in seen["login"]
    asked = next(parse_qs(urlsplit(url).query) for url in seen["asked"] if "/authorize?" in url)
    assert asked["code_challenge_method"] == ["S256"]
    # The issuer does not learn which page was wanted.
    assert not any("greet" in referrer for referrer in seen["referrers"])
    assert (seen["title"], seen["person"].split()[:2]) == ("greet", ["Search", "Ctrl"])
    assert "Operator ann" in " ".join(seen["person"].split())
    assert seen["script"] == ""
    assert seen["cookies"] == [
        {"name": "pegboard-console-PORT", "path": "/console", "httpOnly": True, "sameSite": "Strict"}
    ]
    # The way back leads to no answer of the issuer that could be sent again.
    assert "code=" not in seen["back"], seen["back"]
    assert seen["after"].endswith("/console/login?next=%2Ftools%2Fgreet%3Fprofile%3Ddesk")
