"""SMTP client: sends one mail to a server.

The operator configures the host, so it may be private; metadata services and other special addresses stay blocked. Its
name is resolved once, and the connection goes to the address that was checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, Protocol

import aiosmtplib

from pegboard.egress.connections import GuardedBackend, Resolve
from pegboard.egress.destinations import Destinations
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.model.secret import Secret

SMTP_GOODBYE_S = 2.0  # seconds to end a session after the mail was sent

_WHO = "The mail server"
_DOUBT = " The mail may have been sent; check before you repeat it."


class MailServer(Protocol):
    """The configured server and its protocol settings."""

    @property
    def smtp_host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def user(self) -> str | None: ...
    @property
    def password(self) -> Secret | None: ...
    @property
    def tls(self) -> Literal["starttls", "tls", "none"]: ...
    @property
    def timeout_seconds(self) -> float: ...
    @property
    def sender(self) -> str: ...


async def send(server: MailServer, recipients: Sequence[str], content: bytes, *, resolve: Resolve) -> list[JSON]:
    """Send a mail and return the recipients that the server refused, with its messages.

    Raises:
        CallError: blocked_destination; upstream_unavailable; upstream_auth; upstream_error if every recipient or the
            mail is refused; upstream_lost or timeout if it is unknown whether the mail was accepted.
    """
    client = await _client(server, resolve)
    try:
        await _connect(client, server)
        refused = await _hand_over(client, server.sender, recipients, content)
        with suppress(aiosmtplib.SMTPException, OSError):
            # The mail is accepted, even if closing the session fails.
            await client.quit(timeout=SMTP_GOODBYE_S)
        return refused
    finally:
        client.close()


async def _client(server: MailServer, resolve: Resolve) -> aiosmtplib.SMTP:
    host = f"[{server.smtp_host}]" if ":" in server.smtp_host else server.smtp_host
    only = Destinations(allow_hosts=(f"{host}:{server.port}",), allow_private=True)
    backend = GuardedBackend(only, resolve)
    try:
        connected_socket = await backend.open_socket(server.smtp_host, server.port, timeout_s=server.timeout_seconds)
    except OSError:
        raise CallError("upstream_unavailable", f"{_WHO} cannot be reached. Try again later.") from None
    return aiosmtplib.SMTP(
        hostname=server.smtp_host,
        sock=connected_socket,
        use_tls=server.tls == "tls",
        start_tls=server.tls == "starttls",
        timeout=server.timeout_seconds,
    )


async def _connect(client: aiosmtplib.SMTP, server: MailServer) -> None:
    try:
        await client.connect()
        if server.user is not None and server.password is not None:
            await client.login(server.user, server.password.reveal())
    except aiosmtplib.SMTPAuthenticationError:
        text = f"{_WHO} refused our login. The operator must correct it."
        raise CallError("upstream_auth", text) from None
    except (aiosmtplib.SMTPException, OSError):
        text = f"{_WHO} cannot be reached, or not as the config says. Try again later."
        raise CallError("upstream_unavailable", text) from None


async def _hand_over(client: aiosmtplib.SMTP, sender: str, recipients: Sequence[str], content: bytes) -> list[JSON]:
    try:
        refused, _ = await client.sendmail(sender, list(recipients), content)
    except aiosmtplib.SMTPRecipientsRefused as exc:
        listed = "; ".join(f"{each.recipient}: {each.code} {each.message[:100]}" for each in exc.recipients[:10])
        text = f"{_WHO} refused every recipient ({listed}). Nothing was sent. Correct them."
        raise CallError("upstream_error", text) from None
    except aiosmtplib.SMTPResponseException as exc:
        text = f"{_WHO} refused the mail: {exc.code} {exc.message[:200]}. Nothing was sent."
        raise CallError("upstream_error", text) from None
    except aiosmtplib.SMTPTimeoutError:
        raise CallError("timeout", f"{_WHO} did not answer in time.{_DOUBT}", outcome_unknown=True) from None
    except (aiosmtplib.SMTPException, OSError):
        text = f"The connection to the mail server was lost.{_DOUBT}"
        raise CallError("upstream_lost", text, outcome_unknown=True) from None
    return [
        {"address": address, "code": int(answer.code), "reason": str(answer.message)[:200]}
        for address, answer in refused.items()
    ]
