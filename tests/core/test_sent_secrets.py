"""Secrets that a call sends to a service are redacted from whatever the call says afterwards."""

import asyncio

from pegboard import CallContext, Catalog, ToolContext
from pegboard.model.error import CallError
from pegboard.model.secret import Secret

TOKEN, NEXT = "a-token-of-ann-0123456789", "the-next-token-of-ann-987"


async def test_a_token_that_the_service_repeats_is_redacted_from_results_and_errors() -> None:
    catalog = Catalog()

    @catalog.tool
    async def echo(ctx: CallContext, fails: bool = False) -> str:
        """Send a token, and repeat it."""
        assert ctx.call is not None
        for token in (TOKEN, TOKEN, NEXT):
            ctx.call.sends(Secret(token))
        if fails:
            raise CallError("upstream_error", f"It said {TOKEN}.")
        return f"{TOKEN} and {NEXT}"

    view = catalog.view(ToolContext(user_id="ann"))
    assert (await view.call("echo")).text == "[redacted] and [redacted]"
    refused = await view.call("echo", {"fails": True})
    assert refused.error is not None
    assert refused.error.message == "It said [redacted]."


async def test_a_token_of_one_call_is_no_secret_of_another() -> None:
    catalog, sent = Catalog(), asyncio.Event()

    @catalog.tool
    async def send(ctx: CallContext) -> str:
        """Send a token."""
        assert ctx.call is not None
        ctx.call.sends(Secret(TOKEN))
        sent.set()
        return "sent"

    @catalog.tool
    async def say() -> str:
        """Say a word that is somebody's token."""
        await sent.wait()
        return TOKEN

    view = catalog.view(ToolContext(user_id="ann"))
    said, _ = await asyncio.gather(view.call("say"), view.call("send"))
    assert said.text == TOKEN
