"""The fixtures of the official MCP conformance suite, declared through a catalog.

`python -m tests.conformance.fixtures PORT` serves them; the suite's names and texts are given, see its scenarios.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

from pegboard import (
    AudioContent,
    CallContext,
    CallError,
    Catalog,
    HookCall,
    ImageContent,
    ResourceContent,
    Tasks,
    TextContent,
    ToolSpec,
    Verdict,
)
from pegboard.resources import Message, Resources

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
WAV = base64.b64decode("UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=")
JSON_SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
MIRRORED: dict[str, Any] = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}, "query": {"type": "string"}},
    "required": ["region"],
}
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def conformance_catalog() -> Catalog:
    """Return a catalog with every fixture of the suite."""
    catalog = Catalog("pegboard-conformance", tasks=Tasks())
    declare_all(catalog)
    return catalog


def declare_all(catalog: Catalog) -> None:
    """Declare every fixture of the suite; the catalog has a place for tasks."""
    offers = catalog.resources
    declare_contents(catalog)
    declare_schemas(catalog)
    declare_sessions(catalog)
    declare_rounds(catalog)
    declare_tasks(catalog)
    declare_changes(catalog, offers)
    declare_offers(offers)
    declare_completions(offers)
    catalog.skill("main", Path(__file__).parent / "skill")


def client(ctx: CallContext) -> Any:
    """Return the way back to the client, with what MCP has beyond the port."""
    assert ctx.client is not None
    return ctx.client


def declare_contents(catalog: Catalog) -> None:
    @catalog.tool
    async def test_simple_text() -> str:
        """Answer one text."""
        return "This is a simple text response for testing."

    @catalog.tool(output=Any)
    async def test_image_content() -> ImageContent:
        """Answer an image."""
        return ImageContent(PNG, "image/png")

    @catalog.tool(output=Any)
    async def test_audio_content() -> AudioContent:
        """Answer a sound."""
        return AudioContent(WAV, "audio/wav")

    @catalog.tool(output=Any)
    async def test_embedded_resource() -> ResourceContent:
        """Answer a resource."""
        text = "This is an embedded resource content."
        return ResourceContent("test://embedded-resource", text=text, mime_type="text/plain")

    @catalog.tool(output=Any)
    async def test_multiple_content_types() -> list[object]:
        """Answer text, image and resource."""
        text = json.dumps({"test": "data", "value": 123}, separators=(",", ":"))
        mixed = ResourceContent("test://mixed-content-resource", text=text, mime_type="application/json")
        return [TextContent("Multiple content types test:"), ImageContent(PNG, "image/png"), mixed]

    @catalog.tool
    async def test_error_handling() -> str:
        """Fail."""
        raise CallError("tool_error", "This tool intentionally returns an error for testing")

    @catalog.tool
    async def test_tool_with_progress(ctx: CallContext) -> str:
        """Report progress."""
        for done in (0, 50, 100):
            await ctx.emit({"progress": done, "total": 100, "message": f"Completed step {done} of 100"})
            await asyncio.sleep(0.05)
        return "Tool with progress executed successfully"

    @catalog.tool
    async def test_tool_with_logging(ctx: CallContext) -> str:
        """Send three log lines."""
        for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await client(ctx).log(line)
            await asyncio.sleep(0.05)
        return "Tool with logging executed successfully"

    @catalog.tool
    async def test_logging_tool(ctx: CallContext) -> str:
        """Send a log line, where the request asks for it."""
        await client(ctx).log("test_logging_tool ran")
        return "done"


def declare_schemas(catalog: Catalog) -> None:
    async def shown(_ctx: CallContext, args: dict[str, Any]) -> str:
        return json.dumps(args)

    catalog.register(
        ToolSpec(name="json_schema_2020_12_tool", description="Schema as given", input_schema=JSON_SCHEMA_2020_12),
        shown,
    )
    catalog.register(ToolSpec(name="test_x_mcp_header", description="Mirrored argument", input_schema=MIRRORED), shown)


def declare_sessions(catalog: Catalog) -> None:
    """Declare what asks in the middle of a call; only the earlier revisions can be asked so."""

    async def shown(ctx: CallContext, message: str, properties: dict[str, Any], label: str) -> str:
        answer = await client(ctx).form(message, {"type": "object", "properties": properties, "required": []})
        return f"{label}: action={answer['action']}, content={json.dumps(answer.get('content'))}"

    @catalog.tool
    async def test_sampling(ctx: CallContext, prompt: str) -> str:
        """Ask the client's model."""
        return f"LLM response: {await client(ctx).sample(prompt, max_tokens=100)}"

    @catalog.tool
    async def test_elicitation(ctx: CallContext, message: str) -> str:
        """Ask the person."""
        text = {"type": "string"}
        fields = {"username": {**text, "description": "User's response"}, "email": {**text, "description": "Address"}}
        return await shown(ctx, message, fields, "User response")

    @catalog.tool
    async def test_elicitation_sep1034_defaults(ctx: CallContext) -> str:
        """Ask with defaults."""
        fields: dict[str, Any] = {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            "verified": {"type": "boolean", "default": True},
        }
        return await shown(ctx, "Please review the values", fields, "Elicitation completed")

    @catalog.tool
    async def test_elicitation_sep1330_enums(ctx: CallContext) -> str:
        """Ask with each form of choice."""
        options = ["option1", "option2", "option3"]
        words = list(enumerate(("First", "Second", "Third"), 1))
        titled = [{"const": f"value{n}", "title": f"{word} Option"} for n, word in words]
        choices = [{"const": f"value{n}", "title": f"{word} Choice"} for n, word in words]
        names = ["Option One", "Option Two", "Option Three"]
        fields: dict[str, Any] = {
            "untitledSingle": {"type": "string", "enum": options},
            "titledSingle": {"type": "string", "oneOf": titled},
            "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": names},
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
            "titledMulti": {"type": "array", "items": {"anyOf": choices}},
        }
        return await shown(ctx, "Please choose", fields, "Elicitation completed")

    @catalog.tool
    async def test_reconnection(ctx: CallContext) -> str:
        """Close the stream in the middle of the call, and answer on the next."""
        await client(ctx).close_stream()
        await asyncio.sleep(0.1)
        return "Reconnection test completed"

    @catalog.tool
    async def test_missing_capability(ctx: CallContext) -> str:
        """Need the client's model."""
        client(ctx).require("sampling")
        return "sampling is declared"


def declare_rounds(catalog: Catalog) -> None:
    """Declare what asks a client of 2026-07-28."""

    async def greet(ctx: CallContext) -> str:
        answer = await client(ctx).elicit("What is your name?", NAME, key="user_name")
        return f"Hello, {answer['name']}!"

    for name in ("test_streaming_elicitation", "test_input_required_result_elicitation"):
        catalog.tool(name=name, description="Ask for a name.")(greet)

    @catalog.tool
    async def test_input_required_result_sampling(ctx: CallContext) -> str:
        """Ask the client's model."""
        return await client(ctx).sample("What is the capital of France?", max_tokens=100, key="capital_question")

    @catalog.tool
    async def test_input_required_result_list_roots(ctx: CallContext) -> str:
        """Ask for the client's folders."""
        roots = await client(ctx).roots(key="client_roots")
        return "Roots: " + ", ".join(root["uri"] for root in roots)

    async def confirm(ctx: CallContext) -> str:
        form = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
        await client(ctx).elicit("Please confirm", form, key="confirm")
        return "state-ok"

    for name in ("test_input_required_result_request_state", "test_input_required_result_tampered_state"):
        catalog.tool(name=name, description="Ask with a sealed state.")(confirm)

    @catalog.tool
    async def test_input_required_result_multiple_inputs(ctx: CallContext) -> str:
        """Ask three things at once."""
        await asyncio.gather(
            client(ctx).elicit("What is your name?", NAME, key="user_name"),
            client(ctx).sample("Generate a greeting", max_tokens=50, key="greeting"),
            client(ctx).roots(key="client_roots"),
        )
        return "All inputs received"

    @catalog.tool
    async def test_input_required_result_multi_round(ctx: CallContext) -> str:
        """Ask one thing after the other."""
        color = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
        first = await client(ctx).elicit("Step 1: What is your name?", NAME, key="step1")
        second = await client(ctx).elicit("Step 2: What is your favorite color?", color, key="step2")
        return f"{first['name']} likes {second['color']}"

    @catalog.tool
    async def test_input_required_result_capabilities(ctx: CallContext) -> str:
        """Ask only what the client can do."""
        asked = []
        if client(ctx).can("sampling"):
            asked.append(client(ctx).sample("Say hello", max_tokens=20, key="question"))
        if client(ctx).can("elicitation"):
            asked.append(client(ctx).elicit("What is your name?", NAME, key="user_name"))
        await asyncio.gather(*asked)
        return f"{len(asked)} answers"


def declare_tasks(catalog: Catalog) -> None:
    """Declare what goes on as a task."""

    @catalog.tool
    async def greet(name: str) -> str:
        """Greet at once."""
        return f"Hello, {name}!"

    @catalog.tool(task="optional")
    async def slow_compute(seconds: float, label: str = "") -> str:
        """Take some time."""
        await asyncio.sleep(seconds)
        return f"computed {label} in {seconds} s"

    @catalog.tool(task="required")
    async def failing_job() -> str:
        """Fail, as a tool does."""
        raise CallError("tool_error", "The job failed.")

    @catalog.tool(task="optional")
    async def protocol_error_job() -> str:
        """Fail, as a server does."""
        raise CallError("protocol_error", "The job could not be run.")

    @catalog.tool(task="optional")
    async def confirm_delete(ctx: CallContext, filename: str) -> str:
        """Ask before it acts."""
        form = {"type": "object", "properties": {"confirm": {"type": "boolean"}}, "required": ["confirm"]}
        answer: Any = await ctx.ask(f"Delete {filename}?", schema=form)
        return f"deleted {filename}" if answer["confirm"] else "kept"

    @catalog.tool(task="optional")
    async def multi_input(ctx: CallContext) -> str:
        """Ask two things at once."""
        first, second = await asyncio.gather(ctx.ask("Who?", schema=NAME), ctx.ask("And who else?", schema=NAME))
        return f"{first} and {second}"

    @catalog.tool(task="required")
    async def test_tool_with_task(user_name: str = "") -> str:
        """Greet somebody, in a task."""
        return f"Hello, {user_name}!"

    @catalog.before("test_tool_with_task")
    async def ask_for_the_name(call: HookCall) -> Verdict | None:
        if call.args.get("user_name"):
            return None
        answer = await client(call.ctx).elicit("What is your name?", NAME, key="user_name")
        return Verdict.replace({"user_name": answer["name"]})


def declare_changes(catalog: Catalog, offers: Resources) -> None:
    """Declare tools that change the lists."""

    @catalog.tool
    async def test_trigger_tool_change() -> str:
        """Add a tool, or take it back."""
        if "added_tool" in {entry.wire_name for entry in catalog.snapshot().entries}:
            catalog.unregister("added_tool")
        else:
            catalog.tool(name="added_tool", description="Added while serving.")(lambda: "added")
        return "changed"

    @catalog.tool
    async def test_trigger_prompt_change() -> str:
        """Add a prompt, or take it back."""
        if "added_prompt" in {getattr(spec, "name", "") for spec in offers.specs}:
            offers.remove("prompt.added_prompt")
        else:
            offers.prompt(name="added_prompt", description="Added while serving.")(lambda: "added")
        return "changed"


def declare_offers(offers: Resources) -> None:
    @offers.resource("test://static-text", name="static-text", mime_type="text/plain")
    def static_text() -> str:
        """A static text."""
        return "This is the content of the static text resource."

    @offers.resource("test://static-binary", name="static-binary", mime_type="image/png")
    def static_binary() -> bytes:
        """A static image."""
        return PNG

    @offers.resource("test://template/{id}/data", name="template", mime_type="application/json")
    def template(id: str) -> dict[str, object]:  # noqa: A002 - the suite's name
        """Data by id."""
        return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}

    @offers.resource("test://watched-resource", name="watched-resource", mime_type="text/plain")
    def watched() -> str:
        """A resource to subscribe to."""
        return "Watched resource content"

    @offers.prompt
    def test_simple_prompt() -> str:
        """Without arguments."""
        return "This is a simple prompt for testing."

    @offers.prompt
    def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
        """With two arguments.

        Args:
            arg1: First test argument.
            arg2: Second test argument.
        """
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @offers.prompt
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[object]:
        """With a resource.

        Args:
            resourceUri: The resource to embed.
        """
        inner = ResourceContent(resourceUri, text="Embedded resource content for testing.", mime_type="text/plain")
        return [Message("user", inner), "Please process the embedded resource above."]

    @offers.prompt
    def test_prompt_with_image() -> list[object]:
        """With an image."""
        return [Message("user", ImageContent(PNG, "image/png")), "Please analyze the image above."]

    @offers.prompt
    async def test_input_required_result_prompt(ctx: CallContext) -> str:
        """Ask for its context."""
        form = {"type": "object", "properties": {"context": {"type": "string"}}, "required": ["context"]}
        answer = await client(ctx).elicit("What context should the prompt use?", form, key="user_context")
        return f"Context: {answer['context']}"


def declare_completions(offers: Resources) -> None:
    @offers.completion("arg1", prompt="test_prompt_with_arguments")
    def places(value: str) -> list[str]:
        return [word for word in ("paris", "park", "party") if word.startswith(value)]


if __name__ == "__main__":
    from pegboard import run_http

    run_http(conformance_catalog(), port=int(sys.argv[1]))
