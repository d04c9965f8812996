"""send_email: send an e-mail through the SMTP server of the config."""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import Sequence
from email import policy
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from pegboard.lazy import LazyModule
from pegboard.model.bounds import MIB
from pegboard.model.call_context import CallContext
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.model.tool import Annotations, Handler
from pegboard.sources.builtin.kind import BuiltinConfig, BuiltinKind, SecretText, Services, tool_spec

if TYPE_CHECKING:
    from pegboard.sources.builtin import smtp_client
else:
    smtp_client = LazyModule("pegboard.sources.builtin.smtp_client")

EMAIL_RECIPIENTS = 50  # recipients of one mail


# Two plain parts, without quotes, comments, lists or line breaks, which could turn one address into two. Encoded words
# (`=?utf-8?q?…?=`) are excluded too: the library would decode them, including line breaks.
_ATOM = r"[A-Za-z0-9!#$%&*+/=?^_`{|}~'-]+"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ADDRESS = re.compile(
    rf"(?!.*=\?)(?=[^@]{{1,64}}@.{{1,253}}\Z){_ATOM}(?:\.{_ATOM})*@{_LABEL}(?:\.{_LABEL})*", re.DOTALL
)
# Control characters, and separators of lines and paragraphs.
_BREAKING = frozenset({"Cc", "Zl", "Zp"})


class EmailConfig(BuiltinConfig):
    """The server that sends the mail, and the sender."""

    smtp_host: str = Field(min_length=1, description="The SMTP server.")
    port: int = Field(587, gt=0, le=65535, description="The port of the SMTP server.")
    user: str | None = Field(None, description="The login, if the server requires one.")
    password: SecretText | None = Field(None, description="The password of the login, such as `${SMTP_PASSWORD}`.")
    from_address: str | None = Field(None, description="The sender. Default: `user`.")
    tls: Literal["starttls", "tls", "none"] = Field("starttls", description="How the connection is secured.")
    timeout_seconds: float = Field(30.0, gt=0, le=600, description="The time limit of the server, in seconds.")
    max_bytes: int = Field(10 * MIB, gt=0, description="The size limit of one mail, in bytes.")

    @model_validator(mode="after")
    def _has_a_sender(self) -> Self:
        if not _ADDRESS.fullmatch(self.sender):
            raise ValueError("`from_address` must be an address, such as reports@example.com")
        if (self.user is None) != (self.password is None):
            raise ValueError("`user` and `password` belong together")
        if self.password is not None and self.tls == "none" and self.smtp_host not in ("localhost", "127.0.0.1", "::1"):
            raise ValueError("a password would be sent unencrypted; set `tls: starttls` or `tls: tls`")
        return self

    @property
    def sender(self) -> str:
        """Who the mail is from."""
        return self.from_address or self.user or ""


_TO: JSON = {
    "anyOf": [
        {"type": "string", "minLength": 3},
        {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": EMAIL_RECIPIENTS},
    ]
}
SPEC = tool_spec(
    "send_email",
    "Send an e-mail. It is sent once; the result says which recipients the server refused.",
    arguments={
        "to": _TO | {"description": "An address, or several."},
        "subject": {"type": "string", "maxLength": 900, "description": "The subject line."},
        "body": {"type": "string", "description": "Plain text."},
        "cc": {**_TO, "description": "Who gets a copy."},
        "html": {
            "type": ["string", "boolean"],
            "description": "The same as HTML, shown where HTML can be; or true: `body` is HTML.",
        },
    },
    required=("to", "subject", "body"),
    result={
        "accepted": {"type": "array", "items": {"type": "string"}},
        "refused": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "address": {"type": "string"},
                    "code": {"type": "integer"},
                    "reason": {"type": "string"},
                },
            },
        },
        "message_id": {"type": "string"},
    },
    always=("accepted", "refused", "message_id"),
    annotations=Annotations(read_only=False, destructive=True, idempotent=False, open_world=True),
    examples=({"to": "ann@example.com", "subject": "Weekly report", "body": "All is well."},),
)


def make(config: EmailConfig, services: Services) -> Handler:
    """Return the handler."""

    async def send(ctx: CallContext, args: JSON) -> JSON:
        to, cc = _addresses(args["to"], "to"), _addresses(args.get("cc", []), "cc")
        recipients = list(dict.fromkeys([*to, *cc]))
        if len(recipients) > EMAIL_RECIPIENTS:
            raise CallError("invalid_arguments", f"At most {EMAIL_RECIPIENTS} recipients at once. Send several mails.")
        message = _message(config, services, args, to, cc)
        content = message.as_bytes()
        if len(content) > config.max_bytes:
            text = f"The mail has {len(content)} bytes; at most {config.max_bytes} are sent. Send less."
            raise CallError("invalid_arguments", text)
        # Imported in a thread on first use, since that takes a tenth of a second.
        deliver = await asyncio.to_thread(getattr, smtp_client, "send")
        refused: list[JSON] = await deliver(config, recipients, content, resolve=services.resolve)
        missing = {str(each["address"]) for each in refused}
        return {
            "accepted": [address for address in recipients if address not in missing],
            "refused": refused,
            "message_id": str(message["Message-ID"]),
        }

    return send


def _addresses(value: Any, name: str) -> list[str]:
    """Return the addresses, each exactly one; a text may have several, separated by commas."""
    parts: Sequence[str] = value.split(",") if isinstance(value, str) else value
    addresses = [part.strip(" ") for part in parts]
    for address in addresses:
        if not _ADDRESS.fullmatch(address):
            text = f"{address[:100]!r} in {name!r} is not an address. Write it as name@example.com."
            raise CallError("invalid_arguments", text)
    return addresses


def _subject(subject: str) -> str:
    """Return a subject on one line, without encoded words."""
    if any(unicodedata.category(character) in _BREAKING for character in subject):
        text = "The subject has a line break or another control character. Remove it."
        raise CallError("invalid_arguments", text)
    if "=?" in subject:
        text = "The subject has '=?', which starts an encoded text in mail programs. Write the text itself."
        raise CallError("invalid_arguments", text)
    return subject.encode("utf-8", "replace").decode()


def _message(config: EmailConfig, services: Services, args: JSON, to: Sequence[str], cc: Sequence[str]) -> EmailMessage:
    subject = _subject(args["subject"])
    message = EmailMessage(policy=policy.SMTP)
    message["From"] = Address(addr_spec=config.sender)
    message["To"] = [Address(addr_spec=address) for address in to]
    if cc:
        message["Cc"] = [Address(addr_spec=address) for address in cc]
    message["Subject"] = subject
    message["Date"] = format_datetime(services.now())
    message["Message-ID"] = make_msgid(domain=config.sender.rpartition("@")[2])
    body: str = args["body"].encode("utf-8", "replace").decode()
    html: str | bool = args.get("html", False)
    message.set_content(body, subtype="html" if html is True else "plain")
    if isinstance(html, str) and html:
        message.add_alternative(html.encode("utf-8", "replace").decode(), subtype="html")
    return message


KIND = BuiltinKind(
    spec=SPEC, config=EmailConfig, make=make, needs_context=False, packages=lambda config: {"aiosmtplib": "tools"}
)
