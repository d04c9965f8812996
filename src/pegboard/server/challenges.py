"""Challenges: refusals that tell a client the reason and where to get a token, as the specifications ask.

Source: RFC 6750, section 3; RFC 9728, sections 2, 3 and 5.1; Model Context Protocol, Authorization.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any
from urllib.parse import urlsplit

from pegboard.auth.rules import TokenRules
from pegboard.model.json_types import JSON
from pegboard.server.host_guard import Refusal

METADATA_PATH = "/.well-known/oauth-protected-resource"
Scope = MutableMapping[str, Any]


class Challenges:
    """The refusals of one set of rules; `tokens` names the issuer of accepted tokens, if any."""

    def __init__(self, tokens: TokenRules | None) -> None:
        self._tokens = tokens

    def missing(self, scope: Scope) -> Refusal:
        """Refuse a request without a credential."""
        text = "Say who you are: send the header 'Authorization: Bearer …'."
        return Refusal(status=401, text=text, headers=self._header(scope))

    def invalid(self, scope: Scope) -> Refusal:
        """Refuse an invalid credential, without the reason."""
        return Refusal(status=401, text="The credential is not valid.", headers=self._header(scope, "invalid_token"))

    def insufficient(self, scope: Scope) -> Refusal:
        """Refuse a token that lacks a scope."""
        text = "The token lacks a scope that this server needs."
        return Refusal(status=403, text=text, headers=self._header(scope, "insufficient_scope"))

    def _header(self, scope: Scope, error: str | None = None) -> tuple[tuple[bytes, bytes], ...]:
        words = {} if error is None else {"error": error}
        if self._tokens is not None:
            if self._tokens.scopes:
                words["scope"] = " ".join(self._tokens.scopes)
            words["resource_metadata"] = _metadata_url(self._tokens, scope)
        parameters = ", ".join(f'{name}="{value}"' for name, value in (words or {"realm": "pegboard"}).items())
        return ((b"www-authenticate", f"Bearer {parameters}".encode("latin-1")),)


def metadata_of(tokens: TokenRules, scope: Scope, *, name: str) -> JSON:
    """Return the document that tells clients where to get a token for this server."""
    path = scope["path"].removeprefix(scope.get("root_path", "")).removeprefix(METADATA_PATH)
    document: JSON = {
        "resource": tokens.audience if _is_url(tokens.audience) else f"{_origin(tokens, scope)}{path}",
        "resource_name": name,
        "authorization_servers": [tokens.issuer],
        "bearer_methods_supported": ["header"],
    }
    return {**document, "scopes_supported": list(tokens.scopes)} if tokens.scopes else document


def _metadata_url(tokens: TokenRules, scope: Scope) -> str:
    path = urlsplit(tokens.audience).path.rstrip("/") if _is_url(tokens.audience) else "/mcp"
    return f"{_origin(tokens, scope)}{METADATA_PATH}{path}"


def _origin(tokens: TokenRules, scope: Scope) -> str:
    """Return the scheme and host that clients use for this server: those of its audience, else those of the request."""
    if _is_url(tokens.audience):
        known = urlsplit(tokens.audience)
        return f"{known.scheme}://{known.netloc}"
    # The host guard has admitted this host.
    host = next((value.decode("latin-1").strip() for name, value in scope["headers"] if name == b"host"), "")
    return f"{scope.get('scheme', 'http')}://{host}"


def _is_url(text: str) -> bool:
    return text.startswith(("https://", "http://"))
