"""ClientChannel: asks the client of a call for input, in the form of its protocol revision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pegboard.core.consent_text import QuestionTooLongError, consent_text, is_shortened, too_long
from pegboard.core.digests import digest
from pegboard.core.elicitation_form import fits_form, form_of, form_problems
from pegboard.model.consent import ConsentRequest
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.model.task import TaskSupport
from pegboard.server.mcp.protocol.task_wire import NEEDED, declares_tasks

SAMPLED_TOKENS = 1_000  # tokens requested from a client's model, unless the tool sets another number

CONSENT_KEY = "pegboard.consent"
ARGUMENTS_KEY = "pegboard/arguments"
UI_EXTENSION = "io.modelcontextprotocol/ui"
UI_MIME_TYPE = "text/html;profile=mcp-app"
_ACTIONS = frozenset({"accept", "decline", "cancel"})
_CONFIRM: JSON = {"type": "object", "properties": {}}


def declares_ui(capabilities: Mapping[str, Any]) -> bool:
    """Tell whether a client declared the user interface extension with a MIME type that we support."""
    extensions: Any = capabilities.get("extensions")
    settings: Any = extensions.get(UI_EXTENSION) if isinstance(extensions, Mapping) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - JSON
    if not isinstance(settings, Mapping):
        return False
    types: Any = settings.get("mimeTypes")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - JSON
    return types is None or (isinstance(types, list) and UI_MIME_TYPE in types)


class QuestionPendingError(CallError):
    """The client was asked. This call ends; the client calls again with the answer."""

    def __init__(self, key: str) -> None:
        super().__init__("consent_required", f"The client was asked and has to call again with the answer ({key!r}).")


class ClientChannel:
    """The questions a tool can ask its client: `ctx.client` in a call over MCP.

    Questions are in wire form; subclasses implement `_ask` per revision. `key` identifies a question within a call
    and is needed if the call asks more than one.
    """

    wants_progress = False
    wants_task = False
    client_name = ""
    """The name that the client program gives itself; empty if it gives none."""
    hops: object = None
    """The servers that the request has passed through, unvalidated; `None` if it does not list any."""

    def __init__(self, capabilities: Mapping[str, Any]) -> None:
        self.capabilities = capabilities
        self.missing: dict[str, JSON] = {}
        self.refused_with: int | None = None
        """The JSON-RPC error code of the refusal."""

    # -- capabilities of the client

    @property
    def supports_ui(self) -> bool:
        """Whether the client declared the user interface extension."""
        return declares_ui(self.capabilities)

    def can(self, capability: str) -> bool:
        """Tell whether the client declared a capability: `elicitation`, `sampling` or `roots`."""
        declared = self.capabilities.get(capability)
        if capability == "elicitation" and isinstance(declared, Mapping) and declared:
            return "form" in declared
        return declared is not None

    @property
    def can_open_urls(self) -> bool:
        """Whether the client declared that it can show a URL to its user and open it."""
        declared = self.capabilities.get("elicitation")
        return isinstance(declared, Mapping) and "url" in declared

    def require(self, capability: str) -> None:
        """Refuse the call with the protocol's own error if the client lacks a capability.

        Raises:
            CallError: `consent_required`.
        """
        if not self.can(capability):
            self.missing[capability] = {}
            raise CallError("consent_required", f"This call needs a client with the capability {capability!r}.")

    def follows_task(self, support: TaskSupport, *, asked: bool) -> bool:
        """Tell whether a call of a tool with this `task` setting runs as a task for this client.

        In 2026-07-28 the server decides, for clients that declared the tasks extension.

        Raises:
            CallError: the tool requires a task and the client does not support them.
        """
        if support == "forbidden":
            return False
        declared = declares_tasks(self.capabilities)
        if support == "required" and not declared:
            self.missing.update(NEEDED)
            text = (
                "This tool runs as a task only, which needs a client with the extension io.modelcontextprotocol/tasks."
            )
            raise CallError("consent_required", text)
        return declared

    # -- questions

    async def elicit(self, message: str, schema: JSONValue = None, *, key: str | None = None) -> JSONValue:
        """Ask the user for an object that fits `schema`, or for a single value if the schema is not an object.

        Raises:
            CallError: `consent_declined`; `consent_required` if the client cannot ask, or the answer is still pending.
        """
        form, is_single = form_of(schema)
        answer = await self.form(message, form, key=key)
        action = answer.get("action")
        content: JSON | None = answer.get("content")
        if action == "decline":
            raise CallError("consent_declined", f"The person declined to answer: {message}")
        if action != "accept" or content is None:
            raise CallError("consent_required", f"The person closed the question without an answer: {message}")
        return content["answer"] if is_single else content

    async def form(self, message: str, schema: JSON, *, key: str | None = None) -> JSON:
        """Show the person a form; return `{"action": "accept" | "decline" | "cancel", "content": {…}}`.

        Raises:
            CallError: the client cannot ask or the answer is still pending; the answer does not fit the form.
        """
        if not self.can("elicitation"):
            raise CallError("consent_required", f"This client cannot ask its user: {message}")
        request: JSON = {
            "method": "elicitation/create",
            "params": {"mode": "form", "message": message, "requestedSchema": schema},
        }
        return await self._ask(key or _key_of(request), request)

    async def sample(self, prompt: str, *, max_tokens: int = SAMPLED_TOKENS, key: str | None = None) -> JSONValue:
        """Ask the client's model and return its text.

        Raises:
            CallError: the client does not offer a model, or has not answered yet.
        """
        self.require("sampling")
        message = {"role": "user", "content": {"type": "text", "text": prompt}}
        request: JSON = {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": max_tokens}}
        answer = await self._ask(key or _key_of(request), request)
        content: Any = answer.get("content")
        blocks = cast("list[JSON]", content if isinstance(content, list) else [content])
        return "\n".join(str(block.get("text", "")) for block in blocks)

    async def roots(self, *, key: str = "roots") -> list[JSON]:
        """Ask for the client's workspace folders, as `{"uri", "name"}`.

        Raises:
            CallError: the client has no folders to list, or has not answered yet.
        """
        self.require("roots")
        answer = await self._ask(key, {"method": "roots/list"})
        return list(answer.get("roots") or ())

    async def approve(self, request: ConsentRequest) -> bool | None:
        """Ask the user to approve one call; `None` if the client cannot ask, or the answer is still pending."""
        if not self.can("elicitation"):
            return None
        try:
            asked = consent_question(request)
        except QuestionTooLongError as error:
            raise too_long(request, error) from None
        try:
            answer = await self._ask(CONSENT_KEY, asked, bound_to=request)
        except QuestionPendingError:
            raise
        except CallError:
            return None
        return {"accept": True, "decline": False}.get(str(answer.get("action")))

    def has_paid(self, tool: str) -> bool:
        """Tell whether limits were already charged for this call in an earlier round; False without rounds."""
        return False

    async def log(self, data: JSONValue, *, level: str = "info", logger: str = "pegboard") -> None:
        """Send the client a log message if it subscribed to that level."""

    async def progress(self, done: float, total: float | None, message: str) -> None:
        """Report the progress of the call if the client asked for it."""

    async def close_stream(self) -> None:
        """End the call's stream if the client can fetch the answer later (earlier revisions over HTTP)."""

    async def _ask(self, key: str, request: JSON, *, bound_to: ConsentRequest | None = None) -> JSON:
        """Return the client's answer to one question.

        Raises:
            CallError: there is no answer, or not yet.
        """
        raise CallError("consent_required", f"This client cannot be asked (question {key!r}).")


def consent_question(request: ConsentRequest) -> JSON:
    """Return the approval question for one specific call.

    Raises:
        QuestionTooLongError: the question is too long for a person to read.
    """
    message = consent_text(request)
    question = _question(message, _CONFIRM)
    if is_shortened(message):
        # The complete arguments, for clients that can expand them.
        question["params"]["_meta"] = {ARGUMENTS_KEY: dict(request.arguments)}
    return question


def _question(message: str, schema: JSON) -> JSON:
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def url_question(message: str, url: str) -> JSON:
    """Return the question whether the user opens a URL."""
    return {"method": "elicitation/create", "params": {"mode": "url", "message": message, "url": url}}


def misfit(request: JSON, answer: object) -> str | None:
    """Return why an answer does not fit this question; `None` if it fits."""
    if not is_object(answer):
        return "an answer is an object"
    match request["method"]:
        case "elicitation/create":
            if answer.get("action") not in _ACTIONS:
                return "`action` is one of accept, decline, cancel"
            if not isinstance(answer.get("content"), dict | None):
                return "`content` is an object with the values of the form"
            if request["params"]["mode"] == "url":
                return None
            form = request["params"]["requestedSchema"]
            return None if fits_form(form, answer) else form_problems(form, answer)
        case "sampling/createMessage":
            return None if _is_content(answer.get("content")) else "`content` is a content block, or a list of them"
        case _:
            return None if _is_list_of_objects(answer.get("roots")) else "`roots` is a list of folders"


def _is_content(content: JSONValue) -> bool:
    return is_object(content) or _is_list_of_objects(content)


def _is_list_of_objects(value: JSONValue) -> bool:
    return is_list(value) and all(map(is_object, value))


def _key_of(request: JSON) -> str:
    return f"ask-{digest(request)[:12]}"
