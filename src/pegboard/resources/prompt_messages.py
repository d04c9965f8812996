"""Prompt messages: the messages of a prompt, and their conversion from a function's return value."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Literal, NamedTuple, cast

from pegboard.model.json_types import JSON
from pegboard.model.record import replace
from pegboard.model.result import CONTENT_TYPES, Content, TextContent, ToolResult
from pegboard.model.tool import ToolEntry


class Message(NamedTuple):
    """One message of a prompt."""

    role: Literal["user", "assistant"]
    content: Content | str


def with_messages(entry: ToolEntry) -> ToolEntry:
    """Return the entry with a handler whose result holds the messages: content blocks and their roles."""
    plain_handler = entry.handler
    assert plain_handler is not None

    def handler(ctx: Any, args: JSON) -> Any:
        value = plain_handler(ctx, args)
        return _awaited(cast("Awaitable[object]", value)) if isinstance(value, Awaitable) else messages_result(value)

    return replace(entry, handler=handler)


async def _awaited(value: Awaitable[object]) -> ToolResult:
    return messages_result(await value)


def messages_result(value: object) -> ToolResult:
    """Return a prompt's messages as a result: one block per message, the roles as the structured value."""
    is_one = isinstance(value, (str, Message, *CONTENT_TYPES)) or not isinstance(value, list | tuple)
    values: Sequence[Any] = [value] if is_one else cast("Sequence[Any]", value)
    messages = [item if isinstance(item, Message) else Message("user", item) for item in values]
    return ToolResult(tuple(map(_block, messages)), [item.role for item in messages], has_structured=True)


def _block(message: Message) -> Content:
    role: str = message.role
    content: Any = message.content
    if not isinstance(content, (str, *CONTENT_TYPES)):
        raise TypeError(f"A prompt returns text, Message(role, content), or a list of them, not {content!r}.")
    if role not in _ROLES:
        raise TypeError(f"A message of a prompt is of 'user' or 'assistant', not of {role!r}.")
    return TextContent(content) if isinstance(content, str) else content


_ROLES = ("user", "assistant")
