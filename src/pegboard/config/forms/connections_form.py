"""Connections form: where the accounts of people are stored, and with which keys their tokens are encrypted."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pegboard.config.forms.value_types import ConcealedText, Form, Maybe

CONNECTIONS_STORE = "sqlite:./connections.db"


class ConnectionsForm(Form):
    """The accounts of people at the services behind sources with `auth: {mode: user}`."""

    key: ConcealedText = Field(
        description="A secret of at least 32 bytes that encrypts tokens, such as ${CONNECTIONS_KEY}. Use the same on "
        "all servers that share the store."
    )
    older_key: Maybe[ConcealedText] = Field(
        None,
        description="The key before it. Tokens that it encrypted can still be read, and get the new key with their "
        "next refresh.",
    )
    store: ConcealedText = Field(
        CONNECTIONS_STORE,
        description="Where connections are stored: sqlite:FILE for the processes of one machine, "
        "postgresql://HOST/NAME for several machines.",
    )
    public_url: Maybe[Annotated[str, Field(pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*[^\s/?#])?$")]] = Field(
        None,
        description="The URL of `pegboard serve --http` as browsers reach it, without a trailing slash. Refused calls "
        "then name the page where a person connects. Without it, people connect with `pegboard connect`.",
    )
