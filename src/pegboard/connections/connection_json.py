"""Connection JSON: a connection as the command line and the HTTP API show it, without its tokens."""

from __future__ import annotations

from datetime import UTC, datetime

from pegboard.connections.connection_records import AwaitedConnection, Connection
from pegboard.model.json_types import JSON


def connection_json(connection: Connection) -> JSON:
    """Return a connection's person, source, scopes and end; times in ISO 8601."""
    return {
        "id": connection.id,
        "user": connection.person.user_id,
        "space": connection.person.space_id,
        "source": connection.source,
        "account": connection.account,
        "resource": connection.resource,
        "issuer": connection.issuer,
        "scopes": list(connection.scopes),
        "state": "connected" if connection.is_live else "ended",
        "createdAt": iso_time(connection.created_at),
        "updatedAt": iso_time(connection.updated_at),
        "tokenExpiresAt": None if connection.expires_at is None else iso_time(connection.expires_at),
    }


def connection_detail(connection: Connection) -> JSON:
    """Return the audit's fields for a connection that begins or ends: person, source and scopes."""
    detail: JSON = {
        "connection": connection.id, "user": connection.person.user_id, "space": connection.person.space_id or "",
        "source": connection.source, "account": connection.account or "", "issuer": connection.issuer,
        "scopes": list(connection.scopes),
    }  # fmt: skip
    return {name: value for name, value in detail.items() if value not in ("", [])}


def awaited_json(awaited: AwaitedConnection) -> JSON:
    """Return an entry of the inbox without its link, which is for its person alone."""
    return {
        "source": awaited.source,
        "user": awaited.person.user_id,
        "space": awaited.person.space_id,
        "scopes": list(awaited.scopes),
        "expiresAt": iso_time(awaited.expires_at),
    }


def iso_time(seconds: float) -> str:
    """Return a time, given in seconds since 1970, as text."""
    return datetime.fromtimestamp(seconds, tz=UTC).isoformat(timespec="seconds")
