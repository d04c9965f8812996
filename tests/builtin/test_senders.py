"""send_email against a real SMTP server, send_slack against a server of Slack's shape."""

from __future__ import annotations

import asyncio
import email
import email.policy
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from pegboard import DefinitionError
from pegboard.sources.builtin.builtins import builtin_entry
from tests.builtin.parts import shelf
from tests.builtin.web import Asked, Site, as_json, page
from tests.egress.loopback import RawServer, names
from tests.security.test_ssrf import certificates

CANARY = "CANARY-pass-0004"
MAIL: dict[str, Any] = {"to": "ann@example.com", "subject": "Report", "body": "All is well."}


@dataclass
class Post:
    """Takes every mail, but not for the addresses it does not know."""

    taken: list[Envelope] = field(default_factory=list)
    logins: list[tuple[bytes, bytes]] = field(default_factory=list)

    async def handle_RCPT(self, server: SMTP, session: Session, envelope: Envelope, address: str, options: Any) -> str:
        if address.startswith("nobody"):
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        self.taken.append(envelope)
        return "250 taken"

    def login(self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        self.logins.append((data.login, data.password))
        return AuthResult(success=data.password == CANARY.encode(), handled=False)

    def last(self) -> EmailMessage:
        content = self.taken[-1].content
        assert isinstance(content, bytes)
        message = email.message_from_bytes(content, policy=email.policy.default)
        assert isinstance(message, EmailMessage)
        return message


@asynccontextmanager
async def office(post: Post, *, tls: ssl.SSLContext | None = None, **options: Any) -> AsyncIterator[dict[str, Any]]:
    """A mail server on loopback; gives the config that reaches it."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: SMTP(post, authenticator=post.login, auth_require_tls=False, loop=loop, **options),
        "127.0.0.1",
        0,
        ssl=tls,
    )
    try:
        yield {"smtp_host": "127.0.0.1", "port": server.sockets[0].getsockname()[1], "tls": "none",
               "from_address": "bot@example.com"}  # fmt: skip
    finally:
        server.close()
        await server.wait_closed()


async def test_a_mail_arrives_as_it_was_meant() -> None:
    post = Post()
    async with office(post) as config:
        got = await shelf("send_email", config).value(
            "send_email",
            {
                "to": ["ann@example.com", "bob@example.com"],
                "cc": "cy@example.com",
                "subject": "Größe",
                "body": "Hallo\nü",
                "html": "<b>Hallo</b>",
            },
        )
    assert got["accepted"] == ["ann@example.com", "bob@example.com", "cy@example.com"]
    assert got["refused"] == []
    mail = post.last()
    assert (mail["From"], mail["To"], mail["Cc"]) == (
        "bot@example.com",
        "ann@example.com, bob@example.com",
        "cy@example.com",
    )
    assert (mail["Subject"], mail["Message-ID"]) == ("Größe", got["message_id"])
    plain, rich = mail.get_body(("plain",)), mail.get_body(("html",))
    assert plain is not None
    assert rich is not None
    assert plain.get_content().splitlines() == ["Hallo", "ü"]
    assert "<b>Hallo</b>" in rich.get_content()
    assert post.taken[0].rcpt_tos == got["accepted"]


async def test_recipients_that_the_server_refuses_are_reported() -> None:
    post = Post()
    async with office(post) as config:
        tools = shelf("send_email", config)
        got = await tools.value("send_email", MAIL | {"to": "ann@example.com, nobody@example.com"})
        assert got["accepted"] == ["ann@example.com"]
        assert got["refused"] == [{"address": "nobody@example.com", "code": 550, "reason": "no such user"}]
        error = await tools.error("send_email", MAIL | {"to": "nobody@example.com"})
        assert error.kind == "upstream_error"
        assert "no such user" in error.message
        assert len(post.taken) == 1


@pytest.mark.parametrize(
    "args",
    [{"to": "ann@example.com\r\nBcc: eve@example.com"}, {"to": "ann@example.com\nX: y"}, {"to": "a b@example.com"},
     {"to": "Eve <eve@example.com>"}, {"to": "ann"}, {"to": "ann@@example.com"}, {"to": '"a@b"@example.com'},
     {"to": "ann@example.com>\r\nRCPT TO:<eve@example.com"}, {"to": "@example.com"}, {"to": []}, {"to": ""},
     {"cc": "eve@example.com\r\nBcc: x@example.com"}, {"subject": "a\r\nBcc: eve@example.com"}, {"subject": "a\nb"},
     {"subject": "a\0b"}, {"subject": "a\rb"}, {"subject": "a\u2028b"}, {"subject": "a\x85Bcc: eve@example.com"},
     {"subject": "=?utf-8?q?a=0D=0ABcc:_eve@example.com?="}, {"subject": "x =?utf-8?b?YQ0KQmNjOiBlQGUuZQ==?= y"},
     {"to": "=?utf-8?q?=0D=0ABcc=3Aeve=40example.com?=@example.com"}, {"cc": "=?utf-8?q?a?=@example.com"},
     {"to": "a..b@example.com"}, {"to": ".a@example.com"}, {"to": "a.@example.com"}, {"to": "a@example..com"},
     {"to": [f"u{n}@example.com" for n in range(51)]}],
)  # fmt: skip
async def test_no_argument_can_inject_a_header_or_a_recipient(args: dict[str, Any]) -> None:
    post = Post()
    async with office(post) as config:
        error = await shelf("send_email", config).error("send_email", MAIL | args)
    assert error.kind == "invalid_arguments"
    assert post.taken == []


async def test_a_body_is_a_body_whatever_it_looks_like() -> None:
    post = Post()
    body = "Bcc: eve@example.com\r\n.\r\nMAIL FROM:<eve@example.com>\r\n\r\nQUIT"
    async with office(post) as config:
        await shelf("send_email", config).value("send_email", MAIL | {"body": body, "subject": "é" * 200})
    assert len(post.taken) == 1
    assert post.last()["Bcc"] is None
    assert post.last().get_content().splitlines() == body.splitlines()
    assert post.last()["Subject"] == "é" * 200


async def test_a_mail_has_the_headers_of_this_tool_and_no_others() -> None:
    post = Post()
    async with office(post) as config:
        subjects = ("Why? = because?", "a: b", "é" * 300, "x" * 900, "\u202e", "=", "?=", "X-A: y " * 40)
        for subject in subjects:
            await shelf("send_email", config).value(
                "send_email", MAIL | {"subject": subject, "cc": "o'b+c@example.com"}
            )
            content = post.taken[-1].content
            assert isinstance(content, bytes)
            lines = content.partition(b"\r\n\r\n")[0].decode("ascii").split("\r\n")
            names = [line.partition(":")[0] for line in lines if not line.startswith((" ", "\t"))]
            assert sorted(names) == ["Cc", "Content-Transfer-Encoding", "Content-Type", "Date", "From", "MIME-Version",
                                     "Message-ID", "Subject", "To"]  # fmt: skip
            assert post.last()["Subject"].split() == subject.split()


async def test_a_login_is_used_and_never_told() -> None:
    post = Post()
    async with office(post) as config:
        secret = config | {"user": "bot@example.com", "password": CANARY}
        result = await shelf("send_email", secret).call("send_email", MAIL)
        assert result.error is None
        assert post.logins == [(b"bot@example.com", CANARY.encode())]
        wrong = await shelf("send_email", secret | {"password": "wrong-" + CANARY}).call("send_email", MAIL)
        assert wrong.error is not None
        assert wrong.error.kind == "upstream_auth"
        assert CANARY not in str(result) + str(wrong)


async def test_a_server_without_tls_is_refused_where_the_config_wants_it() -> None:
    post = Post()
    async with office(post) as config:
        error = await shelf("send_email", config | {"tls": "starttls"}).error("send_email", MAIL)
    assert (error.kind, post.taken) == ("upstream_unavailable", [])


@pytest.mark.parametrize("way", ["starttls", "tls"])
async def test_a_mail_and_its_login_go_to_the_server_of_the_certificate_alone(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    post = Post()
    server_side, _ = certificates("mail.test", tmp_path)
    options: dict[str, Any] = {"tls": server_side} if way == "tls" else {"tls_context": server_side}
    book = names(mail_test="127.0.0.1", other_test="127.0.0.1")
    async with office(post, **options) as config:
        config |= {"tls": way, "user": "bot@example.com", "password": CANARY}
        for host, trusted, kind in (
            ("mail.test", "", "upstream_unavailable"),
            ("other.test", "server.pem", "upstream_unavailable"),
            ("mail.test", "server.pem", None),
        ):
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / (trusted or "nothing.pem")))
            result = await shelf("send_email", config | {"smtp_host": host}, resolve=book).call("send_email", MAIL)
            assert (result.error.kind if result.error else None) == kind, result.error
            assert (len(post.taken), len(post.logins)) == ((1, 1) if kind is None else (0, 0))
    assert CANARY not in str(result)


async def test_the_mail_server_is_resolved_once_and_its_addresses_are_judged() -> None:
    post, asked = Post(), list[str]()
    answers = iter([["127.0.0.1"], ["169.254.169.254"], ["8.8.8.8", "::ffff:127.0.0.1"]])

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return next(answers)

    async with office(post) as config:
        tools = shelf("send_email", config | {"smtp_host": "mail.example"}, resolve=resolve)
        await tools.value("send_email", MAIL)
        for _ in range(2):
            assert (await tools.error("send_email", MAIL)).kind == "blocked_destination"
    assert (len(post.taken), asked) == (1, ["mail.example"] * 3)


async def test_a_server_that_is_silent_or_gone_is_a_definite_error() -> None:
    async def silent(reader: Any, writer: Any) -> None:
        await reader.read()

    async with RawServer(silent) as server:
        config = {"smtp_host": "127.0.0.1", "port": server.port, "tls": "none", "from_address": "bot@example.com"}
        error = await shelf("send_email", config | {"timeout_seconds": 0.2}).error("send_email", MAIL)
    assert error.kind in ("timeout", "upstream_unavailable")
    assert (await shelf("send_email", config).error("send_email", MAIL)).kind == "upstream_unavailable"


@pytest.mark.parametrize(
    "config",
    [{}, {"smtp_host": "h"}, {"smtp_host": "h", "from_address": "x\r\ny@z"}, {"smtp_host": "h", "user": "a@b.c"},
     {"smtp_host": "h", "user": "a@b.c", "password": CANARY, "tls": "none"},
     {"smtp_host": "h", "from_address": "a@b", "x": 1}],
)  # fmt: skip
def test_a_config_that_cannot_be_honoured_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError) as caught:
        builtin_entry("send_email", config=config)
    assert CANARY not in str(caught.value)


def slack(asked: Asked) -> bytes:
    if asked.path.startswith("/services/"):
        return page("invalid_payload" if asked.json["text"] == "bad" else "ok")
    if asked.headers.get("authorization") != f"Bearer {CANARY}":
        return as_json({"ok": False, "error": "invalid_auth"})
    if asked.json["channel"] == "#none":
        return as_json({"ok": False, "error": "channel_not_found"})
    return as_json({"ok": True, "channel": "C1", "ts": "17.5"})


async def test_slack_by_token_honours_the_channel() -> None:
    site = Site(slack)
    async with site.server() as server:
        config = {"token": CANARY, "base_url": f"{server.url}/api", "allow_private": True, "channel": "#team"}
        tools = shelf("send_slack", config)
        assert await tools.value("send_slack", {"message": "hi"}) == {"ok": True, "channel": "C1", "ts": "17.5"}
        await tools.value("send_slack", {"message": "hi", "channel": "#other"})
        assert [asked.json["channel"] for asked in site.asked] == ["#team", "#other"]
        assert site.asked[0].target == "/api/chat.postMessage"
        assert "channel_not_found" in (await tools.error("send_slack", {"message": "x", "channel": "#none"})).message
        wrong = await shelf("send_slack", config | {"token": "xx" + CANARY}).error("send_slack", {"message": "x"})
        assert (wrong.kind, CANARY in str(wrong)) == ("upstream_auth", False)


async def test_slack_by_webhook_refuses_a_channel() -> None:
    site = Site(slack)
    async with site.server() as server:
        url = f"{server.url}/services/{CANARY}"
        tools = shelf("send_slack", {"webhook_url": url, "allow_private": True})
        assert await tools.value("send_slack", {"message": "hi"}) == {"ok": True, "channel": None, "ts": None}
        error = await tools.error("send_slack", {"message": "hi", "channel": "#x"})
        assert (error.kind, len(site.asked)) == ("invalid_arguments", 1)
        assert (await tools.error("send_slack", {"message": "bad"})).kind == "upstream_error"
    gone = await tools.error("send_slack", {"message": "hi"})
    assert (gone.kind, CANARY in str(gone)) == ("upstream_unavailable", False)
    for config in ({}, {"token": "a", "webhook_url": "b"}, {"webhook_url": "b", "channel": "#x"}):
        with pytest.raises(DefinitionError):
            builtin_entry("send_slack", config=config)
