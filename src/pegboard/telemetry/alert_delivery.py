"""Alert delivery: send one alert to its receiver, a signed HTTP message or the standard input of a command."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from pegboard.egress.connections import Resolve, system_resolve
from pegboard.egress.destinations import encrypted_host_of
from pegboard.egress.http import GuardedClient
from pegboard.egress.message_signature import signed_headers
from pegboard.egress.process import launch
from pegboard.model.alert import AlertRule
from pegboard.model.error import CallError, PegboardError
from pegboard.model.secret import Secret

ALERT_S = 5.0  # time limit of a receiver for one alert, in seconds
ALERT_PAUSES_S = (1.0, 3.0)  # seconds between the three attempts to send an alert
_ANSWER_BYTES = 65_536


class AlertError(PegboardError):
    """A receiver did not take an alert; the message contains nothing of the receiver's answer, and no secret."""


async def deliver(
    rule: AlertRule,
    message_id: str,
    body: bytes,
    *,
    folder: str,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    resolve: Resolve = system_resolve,
) -> None:
    """Send an alert, up to three times with the same id. A command runs in `folder`.

    Raises:
        AlertError: the receiver did not take it at any attempt.
    """
    for pause_s in (*ALERT_PAUSES_S, None):
        try:
            if rule.url is not None:
                await _post(rule.url, rule.secret or Secret(""), message_id, body, resolve)
            else:
                await _run(rule.command, body, folder)
            return
        except AlertError:
            if pause_s is None:
                raise
            await sleep(pause_s)


async def _post(url: Secret, secret: Secret, message_id: str, body: bytes, resolve: Resolve) -> None:
    # Signed for each attempt: a receiver refuses an old time.
    headers = signed_headers(secret, message_id, int(time.time()), body)
    headers["content-type"] = "application/json"
    try:
        async with GuardedClient(encrypted_host_of(url.reveal(), content="alerts"), resolve=resolve) as client:
            # Redirects are not followed: the message is signed for this address only.
            response = await client.request(
                "POST",
                url.reveal(),
                headers=headers,
                body=body,
                timeout_s=ALERT_S,
                max_redirects=0,
                max_response_bytes=_ANSWER_BYTES,
                on_overflow="truncate",
            )
    except (CallError, OSError) as error:
        raise AlertError(str(error).replace(url.reveal(), "its URL")) from error
    if not 200 <= response.status_code < 300:
        raise AlertError(f"it answered {response.status_code}")


async def _run(command: Sequence[str], body: bytes, folder: str) -> None:
    try:
        async with await launch(command[0], command[1:], cwd=folder or None) as process:
            try:
                async with asyncio.timeout(ALERT_S):
                    await process.write(body + b"\n")
                    process.close_stdin()
                    # A program that prints much must not wait for a reader.
                    async for _ in process.lines():
                        pass
                    code = await process.exited()
            except TimeoutError:
                raise AlertError(f"it ran for longer than {ALERT_S:g} s") from None
            finally:
                await process.stop(grace_s=0)
    except CallError as error:
        raise AlertError(str(error)) from error
    if code:
        raise AlertError(f"it ended with {code}")
