"""Class results: the `render` and `report_error` methods of class tools, and the result they produce."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pegboard.core import normalise as output
from pegboard.model.error import CallError, ErrorKind
from pegboard.model.json_types import JSONValue
from pegboard.model.result import (
    AudioContent,
    Content,
    ImageContent,
    ResourceContent,
    ResourceLink,
    TextContent,
    ToolResult,
)

NOTHING: Any = object()


class Rendered:
    """The blocks, structured value and error that one instance has rendered so far. State of one call."""

    __slots__ = ("blocks", "error", "is_raised", "mirror", "structured")

    def __init__(self) -> None:
        self.blocks: list[Content] = []
        self.mirror: tuple[Content, ...] = ()
        """The texts of structured values that `render` returned; `finished` puts that of the last one at the end."""
        self.structured: Any = NOTHING
        self.error: CallError | None = None
        self.is_raised = False

    def __str__(self) -> str:
        error = f", error={self.error.error.message!r}" if self.error else ""
        return f"{len(self.blocks)} blocks{error}"

    def raise_reported(self) -> None:
        """Raise the reported error, once: code that catches it has handled it.

        Raises:
            CallError: an error was reported.
        """
        if self.error is not None and not self.is_raised:
            self.is_raised = True
            raise self.error

    def finished(self, returned: object) -> object:
        """Return the result of `perform`: rendered blocks, then its return value, then the structured value as text.

        Raises:
            CallError: the error that was reported.
        """
        self.raise_reported()
        if not self.blocks and self.structured is NOTHING:
            return returned
        if self._has_rendered(returned):
            returned = None
        whole: ToolResult = ToolResult() if returned is None else output.normalise(returned)
        whole = whole._replace(content=tuple(self.blocks) + whole.content)
        if self.structured is NOTHING:
            return whole
        mirror: ToolResult = output.structured(self.structured)
        return whole._replace(content=whole.content + mirror.content, structured=mirror.structured, has_structured=True)

    def _has_rendered(self, returned: Any) -> bool:
        """Tell whether `perform` returned blocks from `render`, which are in the result already."""
        rendered = (*self.blocks, *self.mirror)
        return isinstance(returned, tuple) and all(
            any(part is block for block in rendered) for part in cast("tuple[object, ...]", returned)
        )

    def after(self, answer: Any, result: ToolResult, *, seen: int) -> Any:
        """Return the outcome of an after-hook: its error, its answer, or the blocks after the first `seen`."""
        if self.error is not None:
            error = self.error.error
            return ToolResult((TextContent(error.message),), is_error=True, error=error)
        if answer is None and len(self.blocks) > seen:
            return result._replace(content=result.content + tuple(self.blocks[seen:]))
        return answer


class Rendering:
    """The methods for rendering results and errors; base of class tools."""

    rendered: Rendered

    def render(
        self,
        *,
        text: str | None = None,
        image: bytes | None = None,
        audio: bytes | None = None,
        resource: str | bytes | None = None,
        structured: Any = NOTHING,
        mime_type: str | None = None,
        uri: str = "pegboard://result",
    ) -> tuple[Content, ...]:
        """Add blocks to the result, or set its structured value; return the blocks.

        `mime_type` is the media type of the block. `perform` may return these blocks; they appear only once in the
        result. The block of a structured value is its JSON text.

        Raises:
            TypeError: there is nothing to render.
        """
        blocks: list[Content] = []
        if text is not None:
            blocks.append(TextContent(text))
        if image is not None:
            blocks.append(ImageContent(image, mime_type or "image/png"))
        if audio is not None:
            blocks.append(AudioContent(audio, mime_type or "audio/wav"))
        if isinstance(resource, str):
            blocks.append(ResourceContent(uri, text=resource, mime_type=mime_type))
        elif resource is not None:
            blocks.append(ResourceContent(uri, blob=resource, mime_type=mime_type))
        self.rendered.blocks.extend(blocks)
        if structured is not NOTHING:
            self.rendered.structured = structured
            mirror = output.structured(structured).content
            self.rendered.mirror += mirror
            blocks.extend(mirror)
        elif not blocks:
            raise TypeError("render() needs text=, image=, audio=, resource= or structured=.")
        return tuple(blocks)

    def render_resource_link(
        self,
        uri: str,
        *,
        name: str,
        mime_type: str | None = None,
        description: str | None = None,
        title: str | None = None,
        annotations: Mapping[str, JSONValue] | None = None,
        size: int | None = None,
    ) -> tuple[Content, ...]:
        """Add a link to a resource that the client may read itself; return it, as `render` does.

        Args:
            uri: its address.
            name: its name, for programs.
            mime_type: its media type.
            description: what it holds, for the model.
            title: its name, for people.
            annotations: MCP's `audience`, `priority` and `lastModified`.
            size: its length in bytes.
        """
        link = ResourceLink(uri, name, mime_type, description, title, annotations=annotations, size=size)
        self.rendered.blocks.append(link)
        return (link,)

    def report_error(self, message: str, *, kind: ErrorKind = "tool_error", hint: str = "") -> None:
        """End the call with an error that the model may read. In a before-hook it stops the call.

        Your method still runs to its end, but its return value is dropped.
        """
        self.rendered.error, self.rendered.is_raised = CallError(kind, message, hint=hint), False
