"""Failures: the errors of outbound requests."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass

import httpcore2
import httpx2

from pegboard.model.error import CallError, ErrorKind

# The texts of h11 and httpcore2 for a connection that closed in the middle of a message.
_ENDED_EARLY = re.compile("peer closed connection|peer unexpectedly closed|Server disconnected")


class EgressError(CallError, httpx2.TransportError):
    """An outbound request failed. Also a transport error of httpx2, so that its clients handle it as one."""


@dataclass(kw_only=True, slots=True)
class Exchange:
    """A running request: its destination (`origin`, without path or query) and whether any bytes were sent."""

    origin: str
    sent: bool = False

    async def trace(self, event_name: str, _values: object) -> None:
        """Record httpcore2's progress; the `trace` extension of a request."""
        if event_name == "http11.send_request_headers.started":
            self.sent = True


def timed_out(exchange: Exchange, *, after_s: float | None = None) -> EgressError:
    """Return the error for a request that ran out of time."""
    span = "in time" if after_s is None else f"within {after_s:g} s"
    return EgressError(
        "timeout",
        f"{exchange.origin!r} did not answer {span}." + _doubt(exchange),
        outcome_unknown=exchange.sent,
    )


def translate(exc: Exception, exchange: Exchange) -> EgressError:
    """Convert an error of httpcore2. Messages never show the address of a name."""
    origin, sent = exchange.origin, exchange.sent
    if isinstance(exc, httpcore2.PoolTimeout | httpcore2.ConnectTimeout):
        return EgressError("timeout", f"{origin!r} could not be reached in time. Try again later.")
    if isinstance(exc, httpcore2.TimeoutException):
        return timed_out(exchange)
    if isinstance(exc, httpcore2.LocalProtocolError):
        return EgressError("invalid_arguments", f"The request to {origin!r} is malformed: {exc}.")
    if isinstance(exc, httpcore2.UnsupportedProtocol):
        return EgressError("blocked_destination", f"{origin!r} is refused: only http and https are allowed.")
    if isinstance(exc, httpcore2.ProtocolError) and not _ENDED_EARLY.search(str(exc)):
        text = f"{origin!r} does not speak correct HTTP: {str(exc)[:200]!r}." + _doubt(exchange)
        return EgressError("protocol_error", text, outcome_unknown=sent)
    if isinstance(exc, httpcore2.ConnectError) or not sent:
        return _unreachable(exc, origin)
    text = f"The connection to {origin!r} was lost before the answer was complete." + _doubt(exchange)
    return EgressError("upstream_lost", text, outcome_unknown=sent)


def _unreachable(exc: Exception, origin: str) -> EgressError:
    kind: ErrorKind = "upstream_unavailable"
    # httpcore2 passes the original error as an argument and cuts the chain of causes.
    cause: object = exc.args[0] if exc.args else None
    if isinstance(cause, ssl.SSLError):
        reason = cause.verify_message if isinstance(cause, ssl.SSLCertVerificationError) else cause.reason
        return EgressError(kind, f"TLS with {origin!r} failed: {reason!r}. Check its certificate.", retryable=False)
    return EgressError(kind, f"{origin!r} refused the connection or cannot be reached. Try again later.")


def _doubt(exchange: Exchange) -> str:
    return " The action may have happened; check before you repeat it." if exchange.sent else ""
