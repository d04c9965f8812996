"""Results in the console: a tree, a table, a diff, images and sounds in place, and files as arguments."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from typing import Any

import pytest

from pegboard import Catalog, ToolSpec
from pegboard.model.result import (
    AudioContent,
    ImageContent,
    ResourceContent,
    ResourceLink,
    TextContent,
    ToolResult,
)
from pegboard.server.console.result_blocks import INLINE_BYTES, TREE_NODES, block_of, tree_of
from pegboard.server.console.schema_form import arguments_of, fields_of, has_files
from pegboard.server.console.visit import SentFile
from tests.server.console.browsing import ADDRESS, console, text_of

PNG = b"\x89PNG\r\n\x1a\n-not-really"
FILE = {"type": "string", "contentEncoding": "base64"}
DIFF = "--- a/order\n+++ b/order\n@@ -1,2 +1,2 @@\n state: open\n-cents: 5\n+cents: 6\n"


async def test_images_and_sounds_are_part_of_the_page_and_other_bytes_are_described() -> None:
    catalog = Catalog("shop")
    parts = (
        ImageContent(PNG), AudioContent(b"RIFF", "audio/wav"), ImageContent(b"<svg onload=x>", "image/svg+xml"),
        ResourceContent(uri="orders://photo", blob=PNG, mime_type="image/png"),
        ResourceContent(uri="orders://zip", blob=b"abc"), ResourceContent(uri="orders://note", text="All fine."),
        ResourceLink(uri="https://elsewhere.example/x", name="archive", description="All orders."),
    )  # fmt: skip
    catalog.tool(name="show")(lambda: ToolResult(parts))
    async with console(catalog) as browser:
        await browser.log_in()
        before = await browser.get("/tools/show")
        assert "data:" not in before.headers["content-security-policy"]
        answer = await browser.post("/tools/show")
        source = f"data:image/png;base64,{b64encode(PNG).decode()}"
        assert answer.text.count(f'<img src="{source}" alt="Image of the result">') == 2
        assert f'<audio controls src="data:audio/wav;base64,{b64encode(b"RIFF").decode()}"' in answer.text
        policy = answer.headers["content-security-policy"]
        assert "img-src 'self' data:; media-src 'self' data:;" in policy
        assert "script-src 'self';" in policy
        shown = text_of(answer.text)
        for part in ("image/svg+xml, 14 bytes", "orders://zip unknown type, 3 bytes", "orders://note All fine.",
                     "archive: https://elsewhere.example/x All orders."):  # fmt: skip
            assert part in shown, part
        assert "data:image/svg" not in answer.text
        assert 'href="https://elsewhere' not in answer.text


async def test_json_is_a_tree_and_a_diff_has_its_lines_marked() -> None:
    catalog = Catalog("shop")
    catalog.tool(name="order")(lambda: {"id": "A-1", "lines": [{"sku": "a", "tags": ["x"]}]})
    catalog.tool(name="changes")(lambda: DIFF)
    catalog.tool(name="raw")(lambda: ToolResult((TextContent('[1, {"a": null}]'), TextContent("[broken"))))
    async with console(catalog) as browser:
        await browser.log_in()
        await browser.get("/tools/order")
        shown = text_of((await browser.post("/tools/order")).text)
        assert '2 fields id "A-1" lines 1 item 0 2 fields sku "a" tags 1 item 0 "x" As JSON' in shown
        await browser.get("/tools/changes")
        page = (await browser.post("/tools/changes")).text
        lines = re.findall(r'<span class="(\w+)">([^<]*)\n</span>', page)
        assert lines == [("file", "--- a/order"), ("file", "+++ b/order"), ("place", "@@ -1,2 +1,2 @@"),
                         ("removed", "-cents: 5"), ("added", "+cents: 6")]  # fmt: skip
        await browser.get("/tools/raw")
        shown = text_of((await browser.post("/tools/raw")).text)
        assert "2 items 0 1 1 1 field a null" in shown
        assert "[broken" in shown


def test_a_tree_has_a_limit_and_counts_what_it_leaves_out() -> None:
    tree = tree_of([*range(TREE_NODES + 500)])
    assert tree.nodes is not None
    assert (len(tree.nodes), tree.left_out) == (TREE_NODES - 1, 501)
    deep: Any = 1
    for _ in range(40):
        deep = {"in": deep}
    node, levels = tree_of(deep), 0
    while node.nodes:
        node, levels = node.nodes[0], levels + 1
    assert (levels, node.left_out) == (20, 1)


def test_large_images_and_unknown_contents_are_described() -> None:
    assert block_of(ImageContent(b"x" * (INLINE_BYTES + 1))).kind == "note"
    assert block_of(object()).text == "object"


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "photo": FILE, "pages": {"type": "array", "items": FILE}, "name": {"type": "string"},
        "form": {"type": "object", "properties": {"scan": {"type": "string", "format": "binary"}}},
    },
    "required": ["photo"],
}  # fmt: skip


def test_files_of_a_form_are_base64_arguments() -> None:
    fields = fields_of(SCHEMA, {})
    assert [field.kind for field in fields] == ["file", "files", "text", "group"]
    assert has_files(fields)
    assert not has_files(fields_of({"properties": {"name": {"type": "string"}}}, {}))
    sent = {"/photo": (SentFile("a.png", PNG),), "/pages": (SentFile("1", b"a"), SentFile("2", b"b")),
            "/form/scan": (SentFile("s", b"s"),)}  # fmt: skip
    assert arguments_of(SCHEMA, {"/name": "ann"}, sent) == {
        "photo": b64encode(PNG).decode(), "pages": ["YQ==", "Yg=="], "name": "ann", "form": {"scan": "cw=="},
    }  # fmt: skip
    assert arguments_of(SCHEMA, {"/name": "ann"}) == {"name": "ann"}


@pytest.mark.parametrize("files", [[("/photo", ("a.png", PNG))], []])
async def test_a_form_with_files_calls_the_tool_with_their_bytes(files: list[Any]) -> None:
    catalog, got = Catalog("shop"), list[Any]()
    spec = ToolSpec(name="store", description="Store a photo.", input_schema=SCHEMA)
    catalog.register(spec, lambda ctx, args: got.append(args) or "stored")
    async with console(catalog) as browser:
        await browser.log_in()
        page = (await browser.get("/tools/store")).text
        assert 'enctype="multipart/form-data"' in page
        token = re.findall(r'name="form_token" value="([^"]+)', page)[0]
        data = {"form_token": token, "/name": "ann"}
        sent = files or [("/photo", ("", b""))]
        answer = await browser.client.post("/console/tools/store", data=data, files=sent, headers={"origin": ADDRESS})
        assert answer.status_code == 200
        if files:
            assert got == [{"photo": b64encode(PNG).decode(), "name": "ann"}]
        else:
            assert "invalid_arguments" in answer.text


def test_a_text_that_only_looks_like_json_stays_text() -> None:
    assert block_of(TextContent("[" * 100_000)).kind == "text"
    assert block_of(TextContent(json.dumps({"a": 1}))).kind == "tree"
