"""Blocks and results that a tool makes by hand reach every door, or are refused in words: the tool ran already."""

import base64
import datetime
from typing import Any

import pytest
from mcp import Client

from pegboard import (
    AudioContent,
    Catalog,
    ImageContent,
    Profile,
    ResourceContent,
    ResourceLink,
    TextContent,
    ToolContext,
    ToolResult,
    http_app,
)  # fmt: skip
from tests.server.doors import served

ANN = ToolContext(user_id="ann")
WAV = b"RIFF...."
NOON = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)
BLOCK: Any = TextContent("a")


class Address:
    """An address as libraries have them."""

    def __str__(self) -> str:
        return "notes://a"


def giving(value: object) -> Catalog:
    catalog = Catalog()
    catalog.tool(name="give")(lambda: value)
    catalog.profile(Profile(name="default"))
    return catalog


@pytest.mark.parametrize(
    ("made", "content"),
    [
        (AudioContent(base64.b64encode(WAV).decode(), "audio/wav"), AudioContent(WAV, "audio/wav")),  # type: ignore[arg-type]
        (ImageContent(bytearray(WAV)), ImageContent(WAV)),  # type: ignore[arg-type]
        (ImageContent(memoryview(WAV), "image/webp"), ImageContent(WAV, "image/webp")),  # type: ignore[arg-type]
        (ResourceContent(Address(), blob="UklGRg=="), ResourceContent("notes://a", blob=b"RIFF")),  # type: ignore[arg-type]
        (TextContent("half \ud800"), TextContent("half ?")),
        (TextContent("a", {"lastModified": NOON}), TextContent("a", {"lastModified": "2026-01-02T12:00:00+00:00"})),
        (
            ResourceLink("notes://a", "a", icons=[{"src": "x"}], size=3),  # type: ignore[arg-type]
            ResourceLink("notes://a", "a", icons=({"src": "x"},), size=3),
        ),
    ],
    ids=["base64", "bytearray", "memoryview", "address", "half a character", "a date", "a list of icons"],
)
async def test_a_block_is_given_as_what_its_members_mean(made: Any, content: Any) -> None:
    for value in (made, [made], ToolResult((made,)), ToolResult([made])):  # type: ignore[arg-type]
        assert (await giving(value).view(ANN).call("give")).content == (content,)


@pytest.mark.parametrize(
    ("made", "fault"),
    [
        (AudioContent("no base64!"), "a AudioContent whose data is a str; it needs bytes, or base64 text."),  # type: ignore[arg-type]
        (ImageContent(None), "a ImageContent whose data is a NoneType; it needs bytes."),  # type: ignore[arg-type]
        (ImageContent(WAV, None), "a ImageContent whose mime_type is a NoneType; it needs a str."),  # type: ignore[arg-type]
        (TextContent({"a": 1}), "a TextContent whose text is a dict; it needs a str."),  # type: ignore[arg-type]
        (TextContent("a", ["x"]), "a TextContent whose annotations is a list; it needs a dict."),  # type: ignore[arg-type]
        (TextContent("a", meta={"x": object()}), "The tool gave something that is not JSON"),
        (ResourceLink("a:b", "a", size="3"), "a ResourceLink whose size is a str; it needs an int."),  # type: ignore[arg-type]
        (ResourceLink("a:b", "a", icons=("x",)), "a ResourceLink whose icons is a tuple; it needs a list of dicts."),  # type: ignore[arg-type]
        (ResourceLink(None, "a"), "a ResourceLink whose uri is a NoneType; it needs a str."),  # type: ignore[arg-type]
        (ToolResult("a text"), "a ToolResult whose content is a str; it needs a tuple of content blocks."),  # type: ignore[arg-type]
        (ToolResult(BLOCK), "a ToolResult whose content is a TextContent; it needs a tuple of content blocks."),
        (ToolResult(("a",)), "a ToolResult whose content is a str; it needs content blocks, such as TextContent."),  # type: ignore[arg-type]
        (ToolResult((BLOCK,), meta=[1]), "a ToolResult whose meta is a list; it needs a dict."),  # type: ignore[arg-type]
        (ToolResult((BLOCK,), meta={"x": object()}), "The tool gave something that is not JSON"),
        (ToolResult((BLOCK,), {"x": object()}, has_structured=True), "The tool gave something that is not JSON"),
    ],
)  # fmt: skip
async def test_a_block_that_is_none_is_refused_by_its_member(made: object, fault: str) -> None:
    error = (await giving(made).view(ANN).call("give")).error
    assert error is not None
    assert (error.kind, error.outcome_unknown, fault in error.message) == ("output_invalid", True, True), error.message


async def test_results_by_hand_keep_what_is_json_and_write_what_is_not() -> None:
    plain = ToolResult((BLOCK,), {"a": [1, {"b": 2**70}]}, meta={"k": [1]}, has_structured=True)
    assert await giving(plain).view(ANN).call("give") == plain
    dated = ToolResult((BLOCK,), {"at": NOON}, meta={"at": NOON}, has_structured=True)
    result = await giving(dated).view(ANN).call("give")
    assert (result.structured, dict(result.meta)) == ({"at": "2026-01-02T12:00:00+00:00"},) * 2


@pytest.mark.parametrize(
    ("made", "structure"),
    [
        ({"half": "a\ud800"}, {"half": "a?"}),
        ({"h\udfff": [{"in": "\ud83d"}]}, {"h?": [{"in": "?"}]}),
        ([2**70, "\ud800", NOON], [2**70, "?", "2026-01-02T12:00:00+00:00"]),
        (ToolResult((BLOCK,), {"half": "a\ud800"}, has_structured=True), {"half": "a?"}),
    ],
    ids=["flat", "deep", "beside a long integer", "by hand"],
)
async def test_half_a_character_costs_itself_and_not_the_result(made: object, structure: object) -> None:
    assert (await giving(made).view(ANN).call("give")).structured == structure


async def test_a_sound_as_base64_reaches_an_mcp_client() -> None:
    catalog = giving(AudioContent("UklGRg==", "audio/wav"))  # type: ignore[arg-type]
    async with served(http_app(catalog)) as url:
        for mode in ("auto", "legacy"):
            async with Client(f"{url}/mcp", mode=mode) as client:
                block: Any = (await client.call_tool("give", {})).content[0]
                assert (block.type, block.data, block.mime_type) == ("audio", "UklGRg==", "audio/wav")
