"""What servers offer beside tools is passed on by `serve`, under their names and by the same judge."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    BlobResourceContents,
    PromptReference,
    ResourceTemplateReference,
    TextContent,
    TextResourceContents,
)

from pegboard import Policy, Profile, http_app
from pegboard.model.record import replace
from pegboard.sources.mcp.server_settings import ServerSettings
from pegboard.sources.mcp.upstream_resources import UpstreamResources, resource_entries, uri_here
from tests.server.doors import served
from tests.upstream_mcp.parts import on_stdio, running, until
from tests.upstream_mcp.test_reference_servers import BIN, reference

TODAY, DAY = "pegboard://up/note://plain/today", "pegboard://up/note://plain/days/{day}"


@asynccontextmanager
async def reached(
    *settings: ServerSettings, mode: Any = "auto", path: str = "/mcp", **profiles: Profile
) -> AsyncGenerator[tuple[Client, Any, Any]]:
    async with running(*settings) as (catalog, sources):
        for profile in profiles.values():
            catalog.profile(profile)
        for source in [sources] if len(settings) == 1 else sources:
            await until(source.resource_entries)
        async with served(http_app(catalog)) as url, Client(f"{url}{path}", mode=mode) as client:
            yield client, catalog, sources


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_resources_prompts_and_completions_come_through_under_the_servers_name(mode: Any) -> None:
    async with reached(on_stdio(), mode=mode) as (client, _, _):
        (today,) = (await client.list_resources()).resources
        assert (today.uri, today.description, today.mime_type) == (TODAY, "The note of today.", "text/markdown")
        (day,) = (await client.list_resource_templates()).resource_templates
        assert day.uri_template == DAY
        (prompt,) = (await client.list_prompts()).prompts
        assert (prompt.name, prompt.title, prompt.description) == ("up__sum_up", "Sum up", "Sum up a text.")
        assert [(one.name, one.required) for one in prompt.arguments or ()] == [("text", True), ("tone", False)]

        (part,) = (await client.read_resource(TODAY)).contents
        assert isinstance(part, TextResourceContents)
        assert (part.uri, part.text, part.mime_type) == (TODAY, "# today", "text/markdown")
        filled = await client.get_prompt("up__sum_up", {"text": "a book", "tone": "warm"})
        (message,) = filled.messages
        assert isinstance(message.content, TextContent)
        assert (message.role, message.content.text) == ("user", "Sum up in a warm tone: a book")

        tones = await client.complete(
            PromptReference(name="up__sum_up"), {"name": "tone", "value": "d"}, context_arguments={"text": "book"}
        )
        assert tones.completion.values == ["dry", "droll", "book"]
        days = await client.complete(ResourceTemplateReference(uri=DAY), {"name": "day", "value": "s"})
        assert days.completion.values == ["sunday"]


async def test_a_value_of_a_template_stays_one_segment() -> None:
    async with reached(on_stdio()) as (client, _, _):
        (part,) = (await client.read_resource(DAY.format(day="mon%20day"))).contents
        assert isinstance(part, TextResourceContents)
        assert part.text == "note of mon day"
        with pytest.raises(MCPError, match="is available to this caller"):
            await client.read_resource(DAY.format(day="..%2F..%2Fsecret"))


async def test_two_servers_with_the_same_names_do_not_meet() -> None:
    async with reached(on_stdio(name="one"), on_stdio(name="two")) as (client, _, _):
        assert [one.uri for one in (await client.list_resources()).resources] == [
            "pegboard://one/note://plain/today",
            "pegboard://two/note://plain/today",
        ]
        assert [one.name for one in (await client.list_prompts()).prompts] == ["one__sum_up", "two__sum_up"]


async def test_who_may_not_have_them_finds_nothing_of_them() -> None:
    only = Profile(name="other", include=("elsewhere",))
    denied = Profile(name="denied", include=("core",), policy=Policy(deny=("up__*",)))
    for path in ("/mcp/other", "/mcp/denied"):
        async with reached(on_stdio(tool_groups={"pid": ("elsewhere",)}), path=path, other=only, denied=denied) as (
            client,
            _,
            _,
        ):
            assert (await client.list_resources()).resources == []
            assert (await client.list_prompts()).prompts == []
            for refused in (client.read_resource(TODAY), client.get_prompt("up__sum_up", {"text": "x"})):
                with pytest.raises(MCPError, match="is available to this caller"):
                    await refused


async def test_when_the_server_is_away_reading_says_so_and_the_lists_follow_it() -> None:
    async with reached(on_stdio(grace_s=0.5)) as (client, catalog, source):
        object.__setattr__(source.settings, "command", "/nowhere/at/all")
        await client.call_tool("up__die", {})
        await until(lambda: source.state().status == "unreachable")
        with pytest.raises(MCPError, match=r"is not available|was lost"):
            await client.read_resource(TODAY)
        await until(lambda: not source.state().is_up)
        assert (await client.list_resources()).resources == []
        assert catalog.snapshot().find("up.add") is not None


def found(**said: Any) -> list[Any]:
    async def run(ask: Any, ctx: Any) -> Any:
        raise AssertionError

    return list(resource_entries(UpstreamResources(**said), on_stdio(), run))


def test_what_cannot_be_taken_is_left_out_alone_and_the_rest_is_cleaned() -> None:
    good = {"uri": "a://b", "name": "b", "description": "fine\u200b\x1b[31m"}
    bad = [{"uri": "a://\u202eb", "name": "x"}, {"uri": "", "name": "x"}, {"uri": "a://" + "x" * 3_000, "name": "x"},
           {"uri": "a://{x}", "name": "x"}, {"name": "x"}]  # fmt: skip
    (only,) = found(resources=[*bad, good])
    assert (only.offer.uri, only.offer.description) == (uri_here("up", "a://b"), "fine")
    templates = [{"uriTemplate": text, "name": "t"} for text in ("a://{x}", "a://{?x}", "a://{x*}", "a://{/x}")]
    assert [one.offer.uri for one in found(templates=templates)] == [uri_here("up", "a://{x}")]
    prompts = [{"name": "p", "arguments": [{"name": "a"}, {"name": "\u200b"}, {}, 3]}, {"name": "p\u0007"}]
    (prompt,) = found(prompts=prompts)
    assert prompt.offer.arguments == (("a", "", False),)
    many = [{"uri": f"a://{number}", "name": "same"} for number in range(500)]
    assert len({one.spec.name for one in found(resources=many)}) == 500
    bounds = replace(on_stdio().bounds, upstream_tools=10)
    assert len(resource_entries(UpstreamResources(resources=many), on_stdio(bounds=bounds), None)) == 10  # type: ignore[arg-type]


async def test_bytes_come_through_as_bytes() -> None:
    if not BIN.is_dir():
        pytest.skip("`make setup` brings the reference servers")
    async with reached(reference("everything", "stdio")) as (client, _, _):
        listed = await client.list_resource_templates()
        blob = next(one.uri_template for one in listed.resource_templates if "blob" in one.uri_template)
        (part,) = (await client.read_resource(blob.replace("{resourceId}", "1"))).contents
        assert isinstance(part, BlobResourceContents)
        assert len((await client.list_prompts()).prompts) >= 3
