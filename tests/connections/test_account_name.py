"""The name of an account comes from an ID token of its issuer for this client, and is never guessed."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Any

import orjson
import pytest

from pegboard.connections.account_name import account_name
from pegboard.model.secret import Secret

NOW = 1_000_000.0
GOOD = {"iss": "https://issuer", "aud": "pegboard", "exp": NOW + 60, "sub": "7f3a"}


def named(**claims: Any) -> str | None:
    body = urlsafe_b64encode(orjson.dumps({**GOOD, **claims})).decode().rstrip("=")
    return account_name(Secret(f"e30.{body}.sig"), issuer="https://issuer", client_id="pegboard", now=NOW)


def test_the_login_goes_before_the_address_and_the_name() -> None:
    assert named(name="Ann Lee", email="ann@x.example", preferred_username="ann") == "ann"
    assert named(name="Ann Lee", email="ann@x.example") == "ann@x.example"
    assert named(name=" Ann Lee ", aud=["other", "pegboard"]) == "Ann Lee"


@pytest.mark.parametrize(
    "claims",
    [
        {}, {"name": ""}, {"name": "x" * 201}, {"name": ["ann"]},  # an identifier is not a name
        {"name": "ann", "iss": "https://other"}, {"name": "ann", "aud": "other"}, {"name": "ann", "aud": None},
        {"name": "ann", "exp": NOW - 301}, {"name": "ann", "exp": "never"},
    ],
)  # fmt: skip
def test_a_token_without_a_name_or_for_others_names_nobody(claims: dict[str, Any]) -> None:
    assert named(**claims) is None


@pytest.mark.parametrize("text", ["", "a.b", "a.b.c", "e30.W10.x", "e30.!!!.x", "e30." + "W1tb" * 20_000 + ".x"])
def test_a_token_that_cannot_be_read_names_nobody(text: str) -> None:
    assert account_name(Secret(text), issuer="https://issuer", client_id="pegboard", now=NOW) is None
    assert account_name(None, issuer="https://issuer", client_id="pegboard", now=NOW) is None
