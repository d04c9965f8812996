"""Templates: renders agent templates in children that can be killed; implements the port `TemplateRenderer`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pegboard.egress.sandbox import SANDBOX_START_S, SandboxError, SandboxPool
from pegboard.model.bounds import KIB
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue

TEMPLATE_S = 1.0  # seconds to render an agent's template, once its child has started
TEMPLATE_CHARS = 256 * KIB  # characters of the rendered text
TEMPLATE_CHILDREN = 2  # templates rendered at once

_RENDERING = "pegboard.agents.template_rendering"
_SYNTAX = ("{{", "{%", "{#")


class SandboxedTemplates:
    """Renders templates in a few children; made in the event loop that uses it, `close` ends them."""

    def __init__(self) -> None:
        self._pool = SandboxPool(
            children=TEMPLATE_CHILDREN,
            timeout_s=TEMPLATE_S + SANDBOX_START_S,
            # A character may take six in JSON (a \\u escape).
            output_bytes=6 * TEMPLATE_CHARS + 100,
            expected="TemplateRefusedError",
        )

    async def text(self, template: str, values: Mapping[str, JSONValue]) -> str:
        """Return the text of a template rendered with these names.

        Raises:
            CallError: `template_error`.
        """
        if not any(mark in template for mark in _SYNTAX):
            return template
        return await self._filled("text", template, values)

    async def json_object(self, template: str, data: Mapping[str, JSONValue]) -> JSON:
        """Return the JSON object that a template makes from `data`; strings in it cannot change the structure.

        Raises:
            CallError: `template_error`.
        """
        return await self._filled("json_object", template, data)

    async def close(self) -> None:
        """End the children."""
        await self._pool.__aexit__(None, None, None)

    async def _filled(self, function: str, template: str, values: Mapping[str, JSONValue]) -> Any:
        request = {"template": template, "max_chars": TEMPLATE_CHARS, "timeout_s": TEMPLATE_S}
        payload = json.dumps(dict(values)).encode("utf-8", "surrogatepass")
        try:
            return await self._pool.call(f"{_RENDERING}:{function}", request, payload)
        except SandboxError as error:
            is_known = error.type_name in ("TemplateRefusedError", "TimeoutError")
            reason = error.text if is_known else f"{error.type_name}: {error.text}"
        except CallError as error:
            reason = error.error.message
        raise CallError("template_error", f"The template cannot be filled: {reason}") from None
