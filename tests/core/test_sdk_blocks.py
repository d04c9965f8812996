"""Lists of texts and media, blocks of the MCP SDK and helpers of FastMCP become content blocks, at every door."""

import base64
import datetime
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as mcp
import pytest
from fastmcp.tools import ToolResult as FastMCPResult
from fastmcp.utilities.types import Audio, File, Image
from mcp import Client
from pydantic import BaseModel

from pegboard import (
    AudioContent,
    Catalog,
    ImageContent,
    Profile,
    ResourceContent,
    ResourceLink,
    Secret,
    TextContent,
    ToolContext,
    ToolResult,
    http_app,
)
from pegboard.adapters import anthropic
from tests.server.doors import served

ANN = ToolContext(user_id="ann")
PNG = b"\x89PNG\r\n\x1a\n0"
IMAGE = ImageContent(PNG, "image/png")
OCTETS = "application/octet-stream"
BASE64 = base64.b64encode(PNG).decode()
SDK_IMAGE = mcp.ImageContent(data=BASE64, mime_type="image/png")


class Row(BaseModel):
    a: int


def giving(value: object, **options: Any) -> Catalog:
    catalog = Catalog()
    catalog.tool(name="give", **options)(lambda: value)
    catalog.profile(Profile(name="default"))
    return catalog


@pytest.mark.parametrize(
    ("returned", "content"),
    [
        (["a", IMAGE], (TextContent("a"), IMAGE)),
        (("a", Image(data=PNG)), (TextContent("a"), IMAGE)),
        ([mcp.TextContent(text="a"), SDK_IMAGE], (TextContent("a"), IMAGE)),
        (["a", PNG], (TextContent("a"), IMAGE)),
        ([Row(a=1), {"b": 2}, [3], None, IMAGE], (*map(TextContent, ['{"a":1}', '{"b":2}', "[3]", "null"]), IMAGE)),
        ([datetime.date(2026, 1, 2), b"\0", IMAGE],
         (TextContent("2026-01-02"), ResourceContent("pegboard://result", None, b"\0", OCTETS), IMAGE)),
        (Image(data=PNG), (IMAGE,)),
        (Audio(data=b"ID3", format="mp3"), (AudioContent(b"ID3", "audio/mpeg"),)),
        (File(data=b"a,b", format="csv", name="t"), (ResourceContent("file:///t.csv", "a,b", None, "text/csv"),)),
        (mcp.TextContent(text="a", annotations=mcp.Annotations(priority=0.5), _meta={"k": 1}),
         (TextContent("a", {"priority": 0.5}, {"k": 1}),)),
        (mcp.EmbeddedResource(resource=mcp.BlobResourceContents(uri="a:b", blob=BASE64, _meta={"k": 1})),
         (ResourceContent("a:b", blob=PNG, resource_meta={"k": 1}),)),
        (mcp.ResourceLink(uri="a:b", name="n", size=3, icons=[mcp.Icon(src="x:y")]),
         (ResourceLink("a:b", "n", icons=({"src": "x:y"},), size=3),)),
        (ToolResult((mcp.TextContent(text="a"), Image(data=PNG))), (TextContent("a"), IMAGE)),  # type: ignore[arg-type]
        (b"RIFF0000WEBPVP8 ", (ImageContent(b"RIFF0000WEBPVP8 ", "image/webp"),)),
    ],
)  # fmt: skip
async def test_every_item_of_a_list_with_a_block_becomes_a_block(returned: object, content: object) -> None:
    result = await giving(returned).view(ANN).call("give")
    assert result == ToolResult(content)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("returned", "structured"),
    [
        ([], []),
        (["a", b"digest"], ["a", "ZGlnZXN0"]),
        ([["a", SDK_IMAGE]], [["a", {"type": "image", "data": BASE64, "mimeType": "image/png"}]]),
        ({"chart": Image(data=PNG)}, {"chart": {"type": "image", "data": BASE64, "mimeType": "image/png"}}),
    ],
)
async def test_other_lists_and_blocks_inside_other_values_stay_json(returned: object, structured: object) -> None:
    result = await giving(returned).view(ANN).call("give")
    assert (result.structured, json.loads(result.text)) == (structured, structured)


async def test_values_with_a_text_form_have_no_quotes_in_the_text() -> None:
    result = await giving(datetime.date(2026, 1, 2)).view(ANN).call("give")
    assert (result.text, result.structured) == ("2026-01-02", "2026-01-02")


async def test_a_whole_result_of_an_sdk_keeps_content_structured_value_meta_and_error() -> None:
    for whole in (
        mcp.CallToolResult(content=[mcp.TextContent(text="a")], structured_content={"b": 1}, _meta={"k": 1}),
        FastMCPResult(content="a", structured_content={"b": 1}, meta={"k": 1}),
    ):
        result = await giving(whole).view(ANN).call("give")
        assert result == ToolResult((TextContent("a"),), {"b": 1}, meta={"k": 1}, has_structured=True)
    for text, message in (("no", "no"), ("", "The tool reported an error without a message.")):
        whole = mcp.CallToolResult(content=[mcp.TextContent(text=text)], is_error=True)
        error = (await giving(whole).view(ANN).call("give")).error
        assert error is not None
        assert (error.kind, error.message) == ("tool_error", message)


def _list() -> list:  # type: ignore[type-arg]
    return ["a", Image(data=PNG)]


def _anything() -> Sequence[Any] | None:
    return ["a", Image(data=PNG)]


def _tuple() -> tuple[Any, ...]:
    return ("a", Image(data=PNG))


def _named() -> list[str | Image]:
    return ["a", Image(data=PNG)]


def _sdk() -> list[mcp.TextContent | mcp.ImageContent]:
    return [mcp.TextContent(text="a"), SDK_IMAGE]


def _whole() -> mcp.CallToolResult:
    return mcp.CallToolResult(content=_sdk())  # type: ignore[arg-type]


def _yielded() -> Iterator[Any]:
    yield "a"
    yield Image(data=PNG)


@pytest.mark.parametrize("tool", [_list, _anything, _tuple, _named, _sdk, _whole, _yielded])
async def test_annotations_of_blocks_and_of_lists_of_anything_promise_no_structured_value(tool: Any) -> None:
    catalog = Catalog()
    catalog.tool(name="give", description="Give.")(tool)
    view = catalog.view(ANN)
    spec = view.find("give").spec  # type: ignore[union-attr]
    assert (spec.output_schema, (await view.call("give")).content) == (None, (TextContent("a"), IMAGE))


def test_lists_with_a_known_length_or_type_keep_their_schema() -> None:
    for annotation in (list[int], list[dict[str, Any]], tuple[Any, int], dict[str, list[Any]]):
        catalog = Catalog()

        def give() -> Any: ...

        give.__annotations__["return"] = annotation
        catalog.tool(name="give", description="Give.")(give)
        assert catalog.view(ANN).find("give").spec.output_schema is not None, annotation  # type: ignore[union-attr]


async def test_blocks_of_a_tool_with_an_output_schema_are_refused_with_what_to_return() -> None:
    catalog = giving(["a", IMAGE], output={"type": "array"})
    error = (await catalog.view(ANN).call("give")).error
    assert error is not None
    assert (error.kind, "ToolResult(content=…, structured=…)" in error.hint) == ("output_invalid", True)


async def test_secrets_and_the_size_limit_hold_for_blocks_of_a_list() -> None:
    context = ToolContext(user_id="ann", secrets={"KEY": Secret("s3cret-value")})
    result = await giving(["my s3cret-", mcp.TextContent(text="value"), Image(data=PNG)]).view(context).call("give")
    assert "cret" not in result.text
    assert result.content[2] == IMAGE
    text = mcp.TextContent(text="x" * 100)
    whole = mcp.CallToolResult(content=[mcp.TextContent(text="a")], structured_content={"b": "x" * 100})
    for returned in ([text, Image(data=PNG)], whole):
        error = (await giving(returned, max_result_bytes=80).view(ANN).call("give")).error
        assert error is not None
        assert error.kind == "result_too_large"


async def test_a_file_that_cannot_be_read_is_reported_without_its_path(tmp_path: Path) -> None:
    error = (await giving(["a", Image(path=tmp_path / "none.png")]).view(ANN).call("give")).error
    assert error is not None
    assert error.message.startswith("An unexpected error occurred")


async def test_mcp_plain_http_and_model_sdks_show_the_blocks() -> None:
    catalog = giving(["a", Image(data=PNG)])
    wire = [{"type": "text", "text": "a"}, {"type": "image", "data": BASE64, "mimeType": "image/png"}]
    async with served(http_app(catalog)) as url:
        async with Client(f"{url}/mcp") as session:
            answer = await session.call_tool("give", {})
            shown = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in answer.content]
            assert (shown, answer.structured_content) == (wire, None)
        async with httpx2.AsyncClient() as client:
            plain = (await client.post(f"{url}/v1/tools/give/call", json={})).json()
        assert plain.get("content") == wire, plain
    call = {"type": "tool_use", "id": "c1", "name": "give", "input": {}}
    source = {"type": "base64", "media_type": "image/png", "data": BASE64}
    parts = [{"type": "text", "text": "a"}, {"type": "image", "source": source}]
    view = giving(["a", Image(data=PNG)]).view(ANN)
    answers = await anthropic.run_tools(view, {"content": [call]})
    assert answers[1]["content"][0]["content"] == parts
