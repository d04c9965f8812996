"""A service where everybody has an account: an MCP server with notes, and its own login. `python notes_service.py`."""

import os
import secrets
import time
from dataclasses import dataclass
from html import escape

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken, AuthorizationCode, RefreshToken, construct_redirect_uri
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthToken
from starlette.responses import HTMLResponse, RedirectResponse

URL = os.environ.get("NOTES_SERVICE", "http://127.0.0.1:8601")
PEOPLE = ("ann", "bob")
TOKEN_S = 300


@dataclass
class Login:
    """The accounts of the service, in memory: no passwords, since it is an example."""

    def __post_init__(self):
        self.clients, self.asked, self.codes, self.access, self.refresh = {}, {}, {}, {}, {}

    async def get_client(self, client_id):
        return self.clients.get(client_id)

    async def register_client(self, client_info):
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client, params):
        ticket = secrets.token_urlsafe()
        self.asked[ticket] = (client, params)
        return f"{URL}/login?ticket={ticket}"

    def agree(self, ticket, user):
        """Return where the browser goes after somebody has logged in and agreed."""
        client, params = self.asked.pop(ticket)
        code = secrets.token_urlsafe()
        self.codes[code] = AuthorizationCode(
            code=code, client_id=client.client_id, subject=user, expires_at=time.time() + 60,
            scopes=params.scopes or ["notes"], code_challenge=params.code_challenge, resource=params.resource,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
        )  # fmt: skip
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state, iss=URL)

    async def load_authorization_code(self, client, authorization_code):
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client, authorization_code):
        del self.codes[authorization_code.code]
        return self._tokens(client, authorization_code)

    async def load_refresh_token(self, client, refresh_token):
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(self, client, refresh_token, scopes):
        del self.refresh[refresh_token.token]  # good once
        return self._tokens(client, refresh_token)

    async def load_access_token(self, token):
        return self.access.get(token)

    async def revoke_token(self, token):
        for tokens in (self.access, self.refresh):
            for text in [text for text, each in tokens.items() if each.subject == token.subject]:
                del tokens[text]

    def _tokens(self, client, agreed):
        same = {
            "client_id": client.client_id,
            "scopes": agreed.scopes,
            "resource": agreed.resource,
            "subject": agreed.subject,
        }
        access, refresh = secrets.token_urlsafe(), secrets.token_urlsafe()
        self.access[access] = AccessToken(token=access, expires_at=int(time.time()) + TOKEN_S, **same)
        self.refresh[refresh] = RefreshToken(token=refresh, **same)
        return OAuthToken(access_token=access, expires_in=TOKEN_S, refresh_token=refresh, scope=" ".join(agreed.scopes))


login = Login()
server = MCPServer(
    "notes",
    auth_server_provider=login,  # pyright: ignore[reportArgumentType] - what it has of the protocol is all that is used
    auth=AuthSettings(
        issuer_url=URL,  # pyright: ignore[reportArgumentType] - an AnyHttpUrl would get a slash, and be another issuer
        resource_server_url=f"{URL}/mcp",  # pyright: ignore[reportArgumentType] - as above
        validate_token_resource=True,
        required_scopes=["notes"],
        client_registration_options=ClientRegistrationOptions(
            enabled=True, valid_scopes=["notes"], default_scopes=["notes"]
        ),
        revocation_options=RevocationOptions(enabled=True),
    ),
)
notes = {"ann": ["Call the bank"], "bob": ["Buy a present for Ann"]}


@server.custom_route("/login", methods=["GET"])
async def ask(request):
    """Ask who is at the browser, and whether they agree."""
    ticket, user = request.query_params.get("ticket", ""), request.query_params.get("user", "")
    if user in PEOPLE and ticket in login.asked:
        return RedirectResponse(login.agree(ticket, user), status_code=302)
    people = "".join(f'<button name="user" value="{name}">I am {name}, and I agree</button> ' for name in PEOPLE)
    return HTMLResponse(
        f"<!doctype html><title>Notes</title><h1>May Pegboard use your notes?</h1>"
        f'<form><input type="hidden" name="ticket" value="{escape(ticket)}">{people}</form>'
    )


def caller() -> str:
    """Return the person whose token came with the call."""
    token = get_access_token()
    if token is None or token.subject is None:
        raise PermissionError("The server admits no call without a person's token.")
    return token.subject


@server.tool()
def my_notes() -> list[str]:
    """List the caller's notes."""
    return notes[caller()]


@server.tool()
def add_note(text: str) -> str:
    """Add a note to the caller's."""
    user = caller()
    notes[user].append(text)
    return f"{user} has {len(notes[user])} notes now."


if __name__ == "__main__":
    server.run("streamable-http", host="127.0.0.1", port=int(URL.rpartition(":")[2]), json_response=True)
