"""A hook at a URL: what the service gets, what its answers do, and that a call waits for no broken service."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from base64 import b64encode
from typing import Any

import pytest

from pegboard import ToolResult
from pegboard.core.view import View
from tests.builtin.web import Asked, Site, answer, as_json
from tests.config.project import Project
from tests.egress.loopback import RawServer

RAN: list[dict[str, Any]] = []
TOOLS = """
from pegboard import default_catalog
from tests.config.test_http_hooks import RAN

@default_catalog.tool
def refund(account: str, amount: int) -> dict:
    "Refund an amount."
    RAN.append({"account": account, "amount": amount})
    return {"account": account, "amount": amount}

@default_catalog.tool
def leak() -> str:
    "Say what stands in the environment."
    return "the key is sesame-opens-17"
"""
CONFIG = """\
python: [guarded]
settings: {{key: "${{KEY}}"}}
limits: {{hook_s: {hook_s}}}
hooks:
  - {{on: {on}, match: "*", use: "{url}", secret: "${{HOOK_SECRET}}", required: {required}}}
"""
SECRET = "a secret of the operator's guard"


def view(project: Project, url: str, on: str = "before", required: bool = False, hook_s: float = 30) -> View:
    project.env = {"KEY": "sesame-opens-17", "HOOK_SECRET": SECRET, **project.env}
    text = CONFIG.format(on=on, url=url, required=str(required).lower(), hook_s=hook_s)
    return project.write(text, guarded=TOOLS).view(user="ann", agent="clerk")


async def refund(project: Project, url: str, **options: Any) -> ToolResult:
    RAN.clear()
    return await view(project, url, **options).call("refund", {"account": "a1", "amount": 5})


async def test_a_service_gets_the_exact_call_signed_and_with_its_time(project: Project) -> None:
    site = Site(lambda _: as_json({"verdict": "allow"}))
    async with site.server() as server:
        result = await refund(project, f"{server.url}/check")
    assert result.structured == {"account": "a1", "amount": 5}
    [asked] = site.asked
    headers = asked.headers
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + asked.body
    assert (
        headers["webhook-signature"] == f"v1,{b64encode(hmac.digest(SECRET.encode(), signed, hashlib.sha256)).decode()}"
    )
    call = asked.json["call"]
    assert (asked.method, asked.target, asked.json["hook"]) == ("POST", "/check", "before")
    assert (call["tool"], call["name"], call["arguments"]) == ("main.refund", "refund", {"account": "a1", "amount": 5})
    assert (call["caller"]["user"], call["caller"]["agent"]) == ("ann", "clerk")


@pytest.mark.parametrize(
    ("verdict", "kind", "ran"),
    [
        ({"verdict": "deny", "reason": "Only test accounts."}, "hook_refused", []),
        ({"verdict": "ask", "reason": "Large refund"}, "consent_required", []),
        ({"verdict": "replace", "arguments": {"account": "a1", "amount": 1}}, None, [{"account": "a1", "amount": 1}]),
        ({"verdict": "replace", "arguments": {"account": "a1", "amount": "all"}}, "invalid_arguments", []),
        ({"verdict": "allow", "reason": "fine"}, None, [{"account": "a1", "amount": 5}]),
    ],
)
async def test_a_service_decides_with_the_verdicts_of_a_python_hook(
    project: Project, verdict: dict[str, Any], kind: str | None, ran: list[dict[str, Any]]
) -> None:
    def judge(asked: Asked) -> bytes:
        # After a replacement every hook judges the new arguments.
        is_new = asked.json["call"]["arguments"] == verdict.get("arguments")
        return as_json({"verdict": "allow"} if is_new else verdict)

    async with Site(judge).server() as server:
        result = await refund(project, server.url)
    assert (result.error and result.error.kind, RAN) == (kind, ran)
    if kind in ("hook_refused", "consent_required"):
        assert verdict["reason"] in result.text


BROKEN = {
    "an error of the service": as_json({"verdict": "allow"}, status="500 Internal Server Error"),
    "a refusal of the service": as_json({"verdict": "allow"}, status="401 Unauthorized"),
    "a redirect": answer(b"", status="307 Temporary Redirect", headers=["Location: /elsewhere"]),
    "nothing": answer(b"", status="204 No Content"),
    "no JSON": answer(b"allow", headers=["Content-Type: text/plain"]),
    "a list": as_json(["allow"]),
    "a verdict that does not exist": as_json({"verdict": "permit"}),
    "a misspelt key": as_json({"verdict": "allow", "arguements": {"account": "x"}}),
    "a replacement without arguments": as_json({"verdict": "replace"}),
    "arguments that are not a mapping": as_json({"verdict": "replace", "arguments": ["a1"]}),
}


@pytest.mark.parametrize("reply", BROKEN.values(), ids=BROKEN)
async def test_whatever_is_no_verdict_refuses_the_call_and_shows_nothing_of_the_service(
    project: Project, reply: bytes
) -> None:
    site = Site(lambda _: reply)
    async with site.server() as server:
        result = await refund(project, f"{server.url}/check?token=t0k3n")
    assert result.error is not None
    assert (result.error.kind, result.text, RAN) == (
        "hook_refused",
        "A check before 'refund' failed, so it was not run.",
        [],
    )
    assert len(site.asked) == 1


async def test_a_service_that_hangs_refuses_the_call_once_the_time_of_a_hook_is_over(project: Project) -> None:
    is_over = asyncio.Event()

    async def hang(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await is_over.wait()

    # A busy machine may spend a short time on the way there.
    for hook_s in (0.1, 1, 10):
        async with RawServer(hang) as server:
            result = await refund(project, server.url, hook_s=hook_s)
        assert (result.error and result.error.kind, RAN) == ("hook_refused", [])
        if server.hits:
            break
    is_over.set()
    assert server.hits == 1


async def test_a_service_after_the_call_replaces_the_result_or_leaves_it(project: Project) -> None:
    replies = iter([{"result": {"account": "***", "amount": 5}}, {}, None])

    def reply(_: Asked) -> bytes:
        said = next(replies)
        return answer(b"", status="204 No Content") if said is None else as_json(said)

    site = Site(reply)
    async with site.server() as server:
        got = [(await refund(project, server.url, on="after")).structured for _ in range(3)]
    plain = {"account": "a1", "amount": 5}
    assert got == [{"account": "***", "amount": 5}, plain, plain]
    assert site.asked[0].json["result"]["structuredContent"] == plain


@pytest.mark.parametrize(
    "reply",
    [BROKEN["an error of the service"], BROKEN["a list"], as_json({"results": 1})],
    ids=["an error of the service", "a list", "a misspelt key"],
)
async def test_a_broken_service_after_the_call_is_skipped_unless_it_is_required(project: Project, reply: bytes) -> None:
    async with Site(lambda _: reply).server() as server:
        skipped = await refund(project, server.url, on="after")
        required = await refund(project, server.url, on="after", required=True)
    assert skipped.structured == {"account": "a1", "amount": 5}
    assert required.error is not None
    assert (required.error.kind, required.error.outcome_unknown) == ("hook_refused", True)


async def test_no_secret_in_a_result_reaches_the_service(project: Project) -> None:
    site = Site(lambda _: as_json({}))
    async with site.server() as server:
        await view(project, server.url, on="on_complete").call("leak", {})
        await view(project, server.url, on="after").call("leak", {})
    assert [asked.json["result"]["content"][0]["text"] for asked in site.asked] == ["the key is [redacted]"] * 2
    assert not any(b"sesame" in asked.body for asked in site.asked)


@pytest.mark.parametrize(
    ("hook", "problem"),
    [
        ("{on: before, use: 'https://g.test/'}", "a hook at a URL needs `secret`"),
        ("{on: before, use: 'http://g.test/', secret: s}", "arguments would be sent unencrypted"),
        ("{on: around, use: 'https://g.test/', secret: s}", "a service cannot run `around` a call"),
        ("{on: before, use: 'python:guarded:refund', secret: s}", "`secret` signs messages to a service"),
        ("{on: before, use: 'https://ann:pw@g.test/', secret: s}", "is not an http or https URL"),
        ("{on: before, use: 'ftp://g.test/', secret: s}", "expected `python:module:function`"),
        ("{on: before, use: '${CODE}'}", "the environment does not decide which code runs"),
    ],
)
def test_a_hook_that_cannot_be_trusted_is_refused_with_what_to_write(project: Project, hook: str, problem: str) -> None:
    project.env = {"CODE": "python:guarded:refund"}
    assert problem in project.write(f"python: [guarded]\nhooks:\n  - {hook}\n", guarded=TOOLS).said()[0]


async def test_the_environment_may_say_where_the_service_is(project: Project) -> None:
    async with Site(lambda _: as_json({"verdict": "deny", "reason": "no"})).server() as server:
        project.env = {"GUARD": server.url}
        result = await refund(project, "${GUARD}")
    assert result.text == "no"
