"""Connections form: the store of people's accounts, and the keys that encrypt their tokens."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pegboard.config.forms.value_types import ConcealedText, Form, Maybe

CONNECTIONS_STORE = "sqlite:./connections.db"


class ConnectionsForm(Form):
    """People's own accounts at other services, for sources with `auth: {mode: user}`."""

    key: ConcealedText = Field(
        description="A secret of at least 32 bytes that encrypts tokens, such as ${CONNECTIONS_KEY}. Use the same key "
        "on all servers that share the store."
    )
    older_key: Maybe[ConcealedText] = Field(
        None,
        description="The previous key. Tokens encrypted with it can still be read; at their next refresh, they are "
        "encrypted with `key`.",
    )
    store: ConcealedText = Field(
        CONNECTIONS_STORE,
        description="Where connections are stored: sqlite:FILE for the processes of one machine, "
        "postgresql://HOST/NAME for several machines.",
    )
    public_url: Maybe[Annotated[str, Field(pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*[^\s/?#])?$")]] = Field(
        None,
        description="The URL that browsers use for the server, without a trailing slash. The error of a refused "
        "call then contains a link to the page where the person connects. Without this key, people "
        "connect with `pegboard connect`.",
    )
