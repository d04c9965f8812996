"""Resources: resources, prompts and completions, declared alike, judged alike, in both eras."""

from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from pegboard import CallContext, CallError, Catalog, DefinitionError, DuplicateToolError, Policy, Profile, http_app
from pegboard.resources import Message, Resources, ResourceSpec
from tests.server.doors import served

ERAS = ("2026-07-28", "legacy")


def offering() -> tuple[Catalog, Resources]:
    catalog = Catalog("offering")
    offers = catalog.resources
    catalog.predicate(name="never")(lambda _: False)

    @offers.resource("notes://today", title="Today", mime_type="text/markdown", groups="core")
    async def today() -> str:
        """What is on today."""
        return "# Today"

    @offers.resource("notes://by-day/{day}", name="by_day", groups="core")
    def by_day(day: str) -> dict[str, str]:
        """Notes of one day."""
        return {"day": day}

    @offers.resource("files://{+path}", name="files", groups="core", rate_limit="1/60s")
    def files(path: str) -> bytes:
        return path.encode()

    offers.resource("notes://admin", name="admin_notes", groups="admin")(lambda: "secret")
    offers.resource("notes://never", name="never_notes", groups="core", available="never")(lambda: "secret")
    offers.resource("notes://denied", name="denied", groups="core")(lambda: "secret")

    @offers.resource("notes://fails", groups="core")
    def fails() -> str:
        raise CallError("upstream_unavailable", "The notes are away; try again later.")

    @offers.prompt(groups="core")
    def review(code: str, style: str = "kind") -> list[Any]:
        """Review code.

        Args:
            code: The code.
            style: How to say it.
        """
        return [f"Review in a {style} way: {code}", Message("assistant", "Gladly.")]

    offers.prompt(name="admin_only", groups="admin")(lambda: "secret")

    @offers.completion("style", prompt="review")
    def styles(value: str, code: str = "") -> list[str]:
        return [style for style in ("kind", "kurt", "terse", code) if style.startswith(value)]

    offers.completion("day", resource="notes://by-day/{day}")(lambda value: ["monday"])
    catalog.profile(Profile(name="chat", include=("core",), policy=Policy(deny=("*denied",))))
    catalog.profile(Profile(name="admin", include=("core", "admin")))
    return catalog, offers


@pytest.mark.parametrize("era", ERAS)
async def test_each_profile_lists_its_own(era: Any) -> None:
    async with served(http_app(offering()[0])) as url:
        async with Client(f"{url}/mcp/chat", mode=era) as client:
            resources = (await client.list_resources()).resources
            assert [item.uri for item in resources] == ["notes://today", "notes://fails"]
            assert (resources[0].title, resources[0].description) == ("Today", "What is on today.")
            templates = (await client.list_resource_templates()).resource_templates
            assert [item.uri_template for item in templates] == ["notes://by-day/{day}", "files://{+path}"]
            (prompt,) = (await client.list_prompts()).prompts
            told = [(item.name, item.description, item.required) for item in prompt.arguments or []]
            assert told == [("code", "The code.", True), ("style", "How to say it.", False)]
        async with Client(f"{url}/mcp/admin", mode=era) as client:
            uris = [item.uri for item in (await client.list_resources()).resources]
            assert uris == ["notes://today", "notes://admin", "notes://denied", "notes://fails"]
            assert [item.name for item in (await client.list_prompts()).prompts] == ["review", "admin_only"]


@pytest.mark.parametrize("era", ERAS)
async def test_of_several_resources_under_one_uri_each_caller_sees_the_one_that_is_read(era: Any) -> None:
    catalog = Catalog("offering")

    def declare(group: str) -> None:
        catalog.resource("help://start", name=f"{group}_start", groups=group)(lambda: group)
        catalog.resource("help://{page}", name=f"{group}_page", groups=group)(lambda page: group)

    for group in ("staff", "public"):
        declare(group)
    for name, include in {"both": ("staff", "public"), "staff": ("staff",), "public": ("public",)}.items():
        catalog.profile(Profile(name=name, include=include))
    async with served(http_app(catalog)) as url:
        for profile, owner in {"both": "staff", "staff": "staff", "public": "public"}.items():
            async with Client(f"{url}/mcp/{profile}", mode=era) as client:
                assert [item.name for item in (await client.list_resources()).resources] == [f"{owner}_start"]
                templates = (await client.list_resource_templates()).resource_templates
                assert [item.name for item in templates] == [f"{owner}_page"]
                for uri in ("help://start", "help://end"):
                    (read,) = (await client.read_resource(uri)).contents
                    assert getattr(read, "text", "") == owner


@pytest.mark.parametrize("era", ERAS)
async def test_what_is_listed_can_be_read_and_the_rest_is_unknown_alike(era: Any) -> None:
    async with served(http_app(offering()[0])) as url, Client(f"{url}/mcp/chat", mode=era) as client:
        (text,) = (await client.read_resource("notes://today")).contents
        assert (text.uri, text.mime_type, getattr(text, "text", "")) == ("notes://today", "text/markdown", "# Today")
        (value,) = (await client.read_resource("notes://by-day/1%20May")).contents
        assert (value.mime_type, getattr(value, "text", "")) == ("application/json", '{"day":"1 May"}')
        (blob,) = (await client.read_resource("files://a/b%2Fc")).contents
        assert getattr(blob, "blob", "") == "YS9iL2M="
        hidden = ["notes://admin", "notes://never", "notes://denied", "notes://nowhere", "notes://by-day/..%2Fetc"]
        errors: list[Any] = []
        for uri in hidden:
            with pytest.raises(MCPError) as caught:
                await client.read_resource(uri)
            errors.append(caught.value.error)
        assert {error.code for error in errors} == {-32602}
        assert [error.data for error in errors] == [{"uri": uri} for uri in hidden]
        texts = {error.message.replace(repr(uri), "URI") for error, uri in zip(errors, hidden, strict=True)}
        assert texts == {"No resource URI is available to this caller."}


@pytest.mark.parametrize("era", ERAS)
async def test_a_reading_is_guarded_as_a_call_is(era: Any) -> None:
    catalog, _ = offering()
    seen: list[str] = []

    @catalog.before("resource.today")
    def note(call: Any) -> None:
        seen.append(call.tool.qualified_id)

    async with served(http_app(catalog)) as url, Client(f"{url}/mcp/chat", mode=era) as client:
        await client.read_resource("notes://today")
        assert seen == ["resource.today"]
        await client.read_resource("files://a")
        with pytest.raises(MCPError, match="temporarily unavailable") as limited:
            await client.read_resource("files://b")
        assert limited.value.error.data == {"kind": "rate_limited", "retryable": True}
        with pytest.raises(MCPError, match="The notes are away; try again later"):
            await client.read_resource("notes://fails")


@pytest.mark.parametrize("era", ERAS)
async def test_a_prompt_gives_its_messages_and_says_what_it_lacks(era: Any) -> None:
    async with served(http_app(offering()[0])) as url, Client(f"{url}/mcp/chat", mode=era) as client:
        messages = (await client.get_prompt("review", {"code": "x = 1"})).messages
        told = [(message.role, getattr(message.content, "text", "")) for message in messages]
        assert told == [("user", "Review in a kind way: x = 1"), ("assistant", "Gladly.")]
        with pytest.raises(MCPError, match=r"\$\.code") as lacking:
            await client.get_prompt("review", {})
        assert lacking.value.error.code == -32602
        for name in ("admin_only", "nowhere"):
            with pytest.raises(MCPError, match=f"No prompt '{name}' is available to this caller"):
                await client.get_prompt(name, {})


@pytest.mark.parametrize("era", ERAS)
async def test_completions_are_given_to_those_who_see_what_they_complete(era: Any) -> None:
    async with served(http_app(offering()[0])) as url, Client(f"{url}/mcp/chat", mode=era) as client:
        review = types.PromptReference(type="ref/prompt", name="review")
        style = {"name": "style", "value": "k"}
        found = await client.complete(review, style, context_arguments={"code": "k2", "unknown": "x"})
        assert (found.completion.values, found.completion.total) == (["kind", "kurt", "k2"], 3)
        by_day = types.ResourceTemplateReference(type="ref/resource", uri="notes://by-day/{day}")
        assert (await client.complete(by_day, {"name": "day", "value": ""})).completion.values == ["monday"]
        assert (await client.complete(review, {"name": "code", "value": ""})).completion.values == []
        for name in ("admin_only", "nowhere"):
            with pytest.raises(MCPError, match="No prompt"):
                await client.complete(types.PromptReference(type="ref/prompt", name=name), style)


async def test_nothing_is_announced_where_nothing_is_offered_until_there_is() -> None:
    catalog = Catalog()
    catalog.profile(Profile(name="chat", include=("core",)))
    offers = catalog.resources
    async with served(http_app(catalog)) as url:
        async with Client(f"{url}/mcp") as client:
            assert (client.server_capabilities.resources, client.server_capabilities.prompts) == (None, None)
        offers.resource("x://y", name="y", groups="core")(lambda: "y")
        async with Client(f"{url}/mcp") as client:
            assert client.server_capabilities.resources is not None
            assert len((await client.list_resources()).resources) == 1


async def test_a_prompt_may_ask_the_person() -> None:
    catalog, offers = offering()

    @offers.prompt(groups="core")
    async def greet(ctx: CallContext) -> str:
        """Greet."""
        return f"Say hello to {await ctx.ask('Whom?')}"

    async def answer(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"answer": "Ann"})

    async with served(http_app(catalog)) as url:
        for era in ERAS:
            async with Client(f"{url}/mcp", mode=era, elicitation_callback=answer) as client:
                (message,) = (await client.get_prompt("greet")).messages
                assert getattr(message.content, "text", "") == "Say hello to Ann"


def test_a_declaration_that_cannot_be_honoured_is_refused() -> None:
    _, offers = offering()
    with pytest.raises(DefinitionError, match="the parameters must be the variables"):
        offers.resource("x://{a}/{b}", name="ab")(lambda a: a)
    with pytest.raises(DefinitionError, match="must be a str"):

        @offers.prompt
        def counted(times: int) -> str:
            return "x" * times

    with pytest.raises(DefinitionError, match="one of them"):
        offers.completion("style")
    with pytest.raises(DefinitionError, match="There is no prompt 'reviw' to complete"):
        offers.completion("style", prompt="reviw")(lambda value: [])
    with pytest.raises(DuplicateToolError):
        offers.resource("notes://other", name="today")(lambda: "x")
    with pytest.raises(DefinitionError, match="tool option 'group'"):
        offers.resource("notes://typo", name="typo", group="core")(lambda: "x")


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("x://y", "x://y", {}),
        ("x://y", "x://y/", None),
        ("x://{a}/b", "x://1/b", {"a": "1"}),
        ("x://{a}/b", "x://1/2/b", None),
        ("x://{a}/b", "x:///b", None),
        ("x://{a}", "x://%2e%2e", None),
        ("x://{a}", "x://1%002", None),
        ("x://{a}", "x://a?b", None),
        ("x://{+a}", "x://1/2?q", {"a": "1/2?q"}),
        ("x://{+a}", "x://1/2%00", None),
        ("x://{a}-{b}", "x://1-2-3", {"a": "1-2", "b": "3"}),
        ("x://(a)+{b}", "x://(a)+1", {"b": "1"}),
        ("x://{a}-{+b}", "x://1-2/3-4", {"a": "1", "b": "2/3-4"}),
        ("x://{+a}/{b}.{c}", "x://1/2/a.tar.gz", {"a": "1/2", "b": "a.tar", "c": "gz"}),
        ("x://{a}{b}", "x://12/", None),
        # What a regular expression takes minutes to say no to, and one too long for its many variables.
        ("x://{a}-{b}-{c}-{d}-{e}", "x://" + "a-" * 1_000 + "/", None),
        ("x://{+a}/{+b}/{+c}/{+d}/z", "x://" + "a/" * 1_000, None),
        ("x://" + "".join(f"{{v{number}}}" for number in range(60)), "x://" + "a" * 2_000, None),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_template_matches_its_own_uris(template: str, uri: str, values: dict[str, str] | None) -> None:
    assert ResourceSpec(uri=template, name="x").match(uri) == values
