"""Smtp: hand one mail to a server.

The host is the operator's, never an argument, so it may be a private one; metadata services and the other special
addresses stay shut. Its name is resolved once, and what is connected to is the address that was judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import aiosmtplib

from pegboard.base.errors import CallError
from pegboard.base.model import JSON
from pegboard.egress.destinations import Destinations
from pegboard.egress.network import GuardedBackend, Resolve

if TYPE_CHECKING:
    from pegboard.sources.builtin.send_email import EmailConfig

_WHO = "The mail server"
_GOODBYE_S = 2.0
_DOUBT = " The mail may have been sent; check before you repeat it."


async def send(config: EmailConfig, recipients: Sequence[str], content: bytes, *, resolve: Resolve) -> list[JSON]:
    """Send a mail and return the recipients that the server refused, with its words.

    Raises:
        CallError: blocked_destination; upstream_unavailable; upstream_auth; upstream_error when every recipient or
            the mail itself is refused; upstream_lost or timeout when it is not known whether the mail was taken.
    """
    client = await _client(config, resolve)
    try:
        await _connect(client, config)
        refused = await _hand_over(client, config.sender, recipients, content)
        with suppress(aiosmtplib.SMTPException, OSError):
            # The mail is taken, whatever becomes of the good-bye.
            await client.quit(timeout=_GOODBYE_S)
        return refused
    finally:
        client.close()


async def _client(config: EmailConfig, resolve: Resolve) -> aiosmtplib.SMTP:
    host = f"[{config.smtp_host}]" if ":" in config.smtp_host else config.smtp_host
    only = Destinations(allow_hosts=(f"{host}:{config.port}",), allow_private=True)
    backend = GuardedBackend(only, resolve)
    try:
        opened = await backend.open_socket(config.smtp_host, config.port, timeout_s=config.timeout_seconds)
    except OSError:
        raise CallError("upstream_unavailable", f"{_WHO} cannot be reached. Try again later.") from None
    return aiosmtplib.SMTP(
        hostname=config.smtp_host,
        sock=opened,
        use_tls=config.tls == "tls",
        start_tls=config.tls == "starttls",
        timeout=config.timeout_seconds,
    )


async def _connect(client: aiosmtplib.SMTP, config: EmailConfig) -> None:
    try:
        await client.connect()
        if config.user is not None and config.password is not None:
            await client.login(config.user, config.password.reveal())
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
