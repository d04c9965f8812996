"""Mail: parses saved emails: their header, text, and the names of their attachments."""

from __future__ import annotations

import email
import email.policy
from collections.abc import Iterable, Iterator
from email.errors import MessageError
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import cast

import oxmsg

from pegboard.model.json_types import JSON, is_list
from pegboard.workspace.parsing.detected import parse_detected
from pegboard.workspace.parsing.markup import parse_html
from pegboard.workspace.parsing.parsed import Parsed, UnreadableError, check_chars, cleaned, one_line

MAIL_PARTS = 1_000  # parts of one email, including those of emails inside
MAIL_LEVELS = 20  # emails inside each other

_OUTLOOK = b"\xd0\xcf\x11\xe0"
_SHOWN = ("From", "To", "Cc", "Date")


def parse_eml(_: object, payload: bytes) -> Parsed:
    """Parse an email (RFC 5322): header, text, the emails inside, and names of attachments."""
    message = email.message_from_bytes(payload, policy=email.policy.default)
    if not message.keys():
        raise UnreadableError("it is not an email: it has no header")
    text = "\n\n".join(_texts(message, _Parts(), 0))
    return _mail(text, *(_header(message, name) for name in ("Subject", "From", "Date")))


class _Parts:
    """The number of parts so far."""

    def __init__(self) -> None:
        self._count = 0
        self._chars = 0

    def add(self, chars: int = 0) -> None:
        """Count a part with its text.

        Raises:
            UnreadableError: there are too many, or their text is too long.
        """
        self._count += 1
        self._chars += chars
        if self._count > MAIL_PARTS:
            raise UnreadableError(f"it has more than {MAIL_PARTS:,} parts")
        check_chars(self._chars)


def _texts(message: Message, parts: _Parts, level: int) -> Iterator[str]:
    """Yield the texts of an email in order."""
    if level > MAIL_LEVELS:
        raise UnreadableError(f"it has more than {MAIL_LEVELS} emails inside each other")
    shown = [f"{name}: {text}" for name in _SHOWN if (text := _header(message, name))]
    yield "\n".join([f"# {_header(message, 'Subject') or 'Email'}", "", *shown])
    names: list[str] = []
    for part in _leaves(message, parts):
        kind = part.get_content_type()
        if kind == "message/rfc822":
            for each in _inner(part):
                yield from _texts(each, parts, level + 1)
        elif part.get_content_disposition() == "attachment" or not kind.startswith("text/"):
            names.append(one_line(part.get_filename() or kind))
        else:
            text = _content(part)
            parts.add(len(text))
            yield parse_html({}, text.encode("utf-8-sig", "replace"))["text"] if kind == "text/html" else text.strip()
    if names:
        yield f"Attachments: {', '.join(names)}"


def _leaves(message: Message, parts: _Parts) -> Iterator[Message]:
    """Yield the parts of one email that are shown: of alternatives, the plain text."""
    waiting: list[Message] = [message]
    while waiting:
        part = waiting.pop()
        parts.add()
        below = _inner(part)
        if not below or part.get_content_type() == "message/rfc822":
            yield part
            continue
        if part.get_content_type() == "multipart/alternative":
            plain = [each for each in below if each.get_content_type() == "text/plain"]
            below = plain[:1] or below[-1:]
        waiting += reversed(below)


def _inner(part: Message) -> list[Message]:
    """Return the parts of a part; none if it is not made of parts."""
    inner: object = part.get_payload()
    return [cast("Message", each) for each in inner if isinstance(each, Message)] if is_list(inner) else []


def _content(part: Message) -> str:
    raw = part.get_payload(decode=True)
    if not isinstance(raw, bytes):
        return ""
    try:
        return raw.decode(part.get_content_charset() or "utf-8", "replace")
    except LookupError:
        return raw.decode("latin-1")


def _header(message: Message, name: str) -> str:
    """Return a header on one line; empty if it is missing or unreadable."""
    try:
        return one_line(str(message.get(name, "")))
    except (MessageError, ValueError, LookupError, AttributeError, IndexError, TypeError):
        # The standard library raises these on some malformed headers.
        return ""


def parse_msg(options: JSON, payload: bytes) -> Parsed:
    """Parse an email of Outlook: header, text, and names of attachments."""
    if not payload.startswith(_OUTLOOK):
        # Other programs use the ending for texts.
        return parse_detected(options, payload)
    try:
        message = oxmsg.Message.load(payload)
        names = [each.file_name or "" for each in message.attachments]
        sent = message.sent_date
        headers = {**message.message_headers, "From": message.sender or "", "Subject": message.subject}
        body = message.body or _page_text(message.html_body)
    except (ValueError, KeyError, IndexError, OSError, AttributeError, TypeError) as error:
        # Of a damaged file, the library raises nearly anything.
        raise UnreadableError(f"it is not an Outlook email: {str(error)[:200]}") from None
    date = sent.isoformat(timespec="seconds") if sent is not None else ""
    subject, sender = one_line(headers["Subject"] or ""), one_line(headers["From"])
    shown = [("From", sender), *((name, one_line(headers.get(name, ""))) for name in ("To", "Cc")), ("Date", date)]
    text = "\n\n".join(_parts_of(subject, shown, body or "", names))
    return _mail(text, subject, sender, date)


def _parts_of(subject: str, shown: Iterable[tuple[str, str]], body: str, names: Iterable[str]) -> Iterator[str]:
    yield "\n".join([f"# {subject or 'Email'}", "", *(f"{name}: {text}" for name, text in shown if text)])
    yield body.strip()
    attached = [one_line(name) for name in names if one_line(name)]
    if attached:
        yield f"Attachments: {', '.join(attached)}"


def _page_text(html: str | None) -> str:
    return parse_html({}, html.encode("utf-8-sig", "replace"))["text"] if html else ""


def _mail(text: str, subject: str, sender: str, date: str) -> Parsed:
    parsed = Parsed(text=cleaned(text), headings=[subject] if subject else [])
    if subject:
        parsed["title"] = subject
    if sender:
        parsed["author"] = sender
    try:
        moment = parsedate_to_datetime(date).isoformat() if date and not date[:4].isdecimal() else date
    except ValueError:
        moment = date
    if moment:
        parsed["created"] = moment
    return parsed
