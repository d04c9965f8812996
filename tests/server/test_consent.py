"""Consent and questions: the person at the client is asked in either era; one yes serves one call (MCPS-08)."""

import asyncio
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client

from pegboard import CallContext, CallError, Catalog, Profile, http_app
from tests.server.doors import FORM, answer_of, call, inside, post, served, workshop

ERAS = ("2026-07-28", "legacy")
CAN_ASK = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
YES = {"pegboard.consent": {"action": "accept", "content": {}}}


def answering(action: Any, content: Any = None, asked: list[str] | None = None) -> Any:
    async def answer(_ctx: Any, params: Any) -> types.ElicitResult:
        if asked is not None:
            asked.append(params.message)
        return types.ElicitResult(action=action, content=content)

    return answer


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("action", "kind", "runs"),
    [("accept", None, ["wipe disk"]), ("decline", "consent_declined", []), ("cancel", "consent_required", [])],
)
async def test_a_dangerous_call_runs_only_after_a_yes(era: Any, action: str, kind: str | None, runs: list[str]) -> None:
    catalog, seen = workshop()
    asked: list[str] = []
    async with served(http_app(catalog)) as url:
        answer = answering(action, {}, asked)
        async with Client(f"{url}/mcp/admin", mode=era, elicitation_callback=answer) as client:
            result = await client.call_tool("wipe", {"what": "disk"})
    assert (result.meta or {}).get("pegboard/error", {}).get("kind") == kind
    assert seen.runs == runs
    assert asked == [
        "Allow this call of 'main.wipe'? 'wipe' needs approval for every call. Arguments: {\"what\": \"disk\"}"
    ]


def payments() -> tuple[Catalog, list[str]]:
    catalog, paid = Catalog(), list[str]()

    @catalog.tool(groups="core", consent="always")
    async def pay(memo: str, to: str, amount: float, tags: list[str] | None = None) -> str:
        """Pay somebody."""
        paid.append(to)
        return "paid"

    catalog.profile(Profile(name="chat", include=("core",)))
    return catalog, paid


@pytest.mark.parametrize("era", ERAS)
async def test_a_padded_call_hides_nothing_of_what_is_agreed_to(era: Any) -> None:
    catalog, paid = payments()
    asked: list[Any] = []

    async def answer(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params)
        return types.ElicitResult(action="accept", content={})

    call = {"memo": "lunch " + "\u200b\n" * 5_000, "to": "eve\u202e", "amount": 9_999.5}
    async with served(http_app(catalog)) as url:
        async with Client(f"{url}/mcp", mode=era, elicitation_callback=answer) as client:
            assert not (await client.call_tool("pay", call)).is_error
    [question] = asked
    for shown in (
        r'"to": "eve\u202e"',
        '"amount": 9999.5',
        "10,006 characters",
        r'"memo": "lunch \u200b\n',
        "SHA-256 ",
    ):
        assert shown in question.message
    assert len(question.message) < 1_000
    # What stands in the text by its ends and digest only is at hand whole.
    assert question.meta["pegboard/arguments"] == {**call, "tags": None}
    assert paid == ["eve\u202e"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_question_that_nobody_would_read_is_refused_unasked(era: Any) -> None:
    catalog, paid = payments()
    asked: list[str] = []
    async with served(http_app(catalog)) as url:
        answer = answering("accept", {}, asked)
        async with Client(f"{url}/mcp", mode=era, elicitation_callback=answer) as client:
            call = {"memo": "", "to": "eve", "amount": 1, "tags": [f"tag {number}" for number in range(2_000)]}
            result = await client.call_tool("pay", call)
    error = (result.meta or {})["pegboard/error"]
    assert (error["kind"], asked, paid) == ("consent_required", [], [])
    assert "more than 8,000 characters" in error["message"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_cannot_ask_is_told_that_a_person_must_agree(era: Any) -> None:
    catalog, seen = workshop()
    async with served(http_app(catalog)) as url, Client(f"{url}/mcp/admin", mode=era) as client:
        result = await client.call_tool("wipe", {"what": "disk"})
    assert (result.meta or {})["pegboard/error"]["kind"] == "consent_required"
    assert seen.runs == []


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_asks_the_person_through_its_context(era: Any) -> None:
    catalog, seen = workshop()
    async with served(http_app(catalog)) as url:
        answer = answering("accept", {"name": "Ann"})
        async with Client(f"{url}/mcp", mode=era, elicitation_callback=answer) as client:
            result = await client.call_tool("greet", {})
    assert [block.text for block in result.content if isinstance(block, types.TextContent)] == ["Hello Ann"]
    assert seen.runs == ["greet"]


async def asked_to_wipe(client: httpx2.AsyncClient, what: str = "disk") -> dict[str, Any]:
    params = {"name": "wipe", "arguments": {"what": what}}
    result = answer_of(await post(client, "tools/call", params, path="/mcp/admin", meta=CAN_ASK))["result"]
    assert result["resultType"] == "input_required"
    assert list(result["inputRequests"]) == ["pegboard.consent"]
    return result


def agreed(state: str, what: str = "disk", name: str = "wipe") -> dict[str, Any]:
    return {"name": name, "arguments": {"what": what}, "inputResponses": YES, "requestState": state}


async def test_a_yes_nobody_asked_for_is_none() -> None:
    catalog, seen = workshop()
    async with inside(http_app(catalog)) as client:
        params = {"name": "wipe", "arguments": {"what": "disk"}, "inputResponses": YES}
        result = answer_of(await post(client, "tools/call", params, path="/mcp/admin", meta=CAN_ASK))["result"]
        assert result["resultType"] == "input_required"
        assert seen.runs == []


async def test_a_tool_that_changed_after_the_yes_is_asked_for_anew() -> None:
    catalog, seen = workshop()
    async with inside(http_app(catalog)) as client:
        state = (await asked_to_wipe(client))["requestState"]

        @catalog.tool(groups="admin", consent="always", replace=True)
        async def wipe(what: str) -> str:
            """Wipe something, and everything beside it."""
            seen.runs.append("changed")
            return "changed"

        response = await post(client, "tools/call", agreed(state), path="/mcp/admin", meta=CAN_ASK)
        assert answer_of(response)["result"]["resultType"] == "input_required"
        assert seen.runs == []


async def test_an_answer_that_does_not_fit_the_form_is_asked_for_again() -> None:
    catalog, seen = workshop()
    async with inside(http_app(catalog)) as client:
        first = (await call(client, "greet", meta=CAN_ASK))["result"]
        (key,) = first["inputRequests"]
        params = {"name": "greet", "requestState": first["requestState"]}
        params["inputResponses"] = {key: {"action": "accept", "content": {"name": 7}}, "other": {"action": "cancel"}}
        second = answer_of(await post(client, "tools/call", params, meta=CAN_ASK))["result"]
        assert list(second["inputRequests"]) == [key]
        assert second["requestState"] != first["requestState"]
        assert seen.runs == []


SAMPLED: Any = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "rhyme"}}
FOLDERS: Any = {"roots": [{"uri": "file:///home"}]}
WRONG: list[Any] = [{"action": "accept", "content": {"name": 7}}, {"action": "accept"}, SAMPLED, FOLDERS]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
async def test_a_client_that_answers_wrongly_for_ever_is_asked_three_times_and_told_what_is_wrong(wrong: Any) -> None:
    catalog, seen = workshop()
    async with inside(http_app(catalog)) as client:
        result = (await call(client, "greet", meta=CAN_ASK))["result"]
        (key,) = result["inputRequests"]
        messages = []
        for _ in range(3):
            assert list(result["inputRequests"]) == [key]
            messages.append(result["inputRequests"][key]["params"]["message"])
            params = {"name": "greet", "requestState": result["requestState"], "inputResponses": {key: wrong}}
            result = answer_of(await post(client, "tools/call", params, meta=CAN_ASK))["result"]
        assert (messages[0], messages[1]) == ("What is your name?", messages[2])
        assert messages[1].startswith("What is your name? (Not accepted: ")
        assert (result["isError"], "3 answers that do not fit" in result["content"][0]["text"]) == (True, True)
        assert seen.runs == []


@pytest.mark.parametrize("wrong", [SAMPLED, FOLDERS], ids=str)
async def test_a_client_that_answers_a_consent_wrongly_for_ever_runs_nothing(wrong: Any) -> None:
    catalog, seen = workshop()
    async with inside(http_app(catalog)) as client:
        result, rounds = await asked_to_wipe(client), 0
        question = result["inputRequests"]["pegboard.consent"]
        while "inputRequests" in result:
            assert result["inputRequests"]["pegboard.consent"] == question, "the text that a person agrees to stays"
            params = {**agreed(result["requestState"]), "inputResponses": {"pegboard.consent": wrong}}
            result = answer_of(await post(client, "tools/call", params, path="/mcp/admin", meta=CAN_ASK))["result"]
            rounds += 1
            assert rounds <= 3
        assert (rounds, result["_meta"]["pegboard/error"]["kind"], seen.runs) == (3, "consent_required", [])


@pytest.mark.parametrize(("ask", "wrong", "right"), [
    ("sample", FOLDERS, SAMPLED),
    ("roots", SAMPLED, FOLDERS),
    ("roots", {"action": "accept", "content": {}}, FOLDERS),
])  # fmt: skip
async def test_a_wrong_answer_of_a_clients_model_or_folders_is_asked_for_again(
    ask: str, wrong: Any, right: Any
) -> None:
    catalog = Catalog()

    @catalog.tool
    async def look(ctx: CallContext) -> str:
        """Ask the client."""
        assert ctx.client is not None
        return str(await (ctx.client.sample("Rhyme.") if ask == "sample" else ctx.client.roots()))

    able: Any = {"io.modelcontextprotocol/clientCapabilities": {"sampling": {}, "roots": {}}}
    async with inside(http_app(catalog)) as client:
        result = (await call(client, "look", meta=able))["result"]
        for answer in (wrong, right):
            (key,) = result["inputRequests"]
            params = {"name": "look", "requestState": result["requestState"], "inputResponses": {key: answer}}
            result = answer_of(await post(client, "tools/call", params, meta=able))["result"]
        assert ("rhyme" if ask == "sample" else "file:///home") in result["content"][0]["text"]


def limited(*, nested: bool = False) -> tuple[Catalog, list[str]]:
    """Return a catalog whose tool asks in the middle, and may be called once in a long while."""
    catalog, runs = Catalog(), list[str]()

    @catalog.tool(groups="core", rate_limit="1/600s")
    async def paint(ctx: CallContext, what: str) -> str:
        """Ask for a colour, then paint."""
        if nested:
            inner = await catalog.view(ctx.child(), profile="chat").call("mix", {})
            runs.append("ok" if inner.error is None else inner.error.kind)
        answer = await ctx.ask("Which colour?", schema=FORM)
        assert isinstance(answer, dict)
        runs.append(f"{what} {answer['name']}")
        return "painted"

    @catalog.tool(groups="core", rate_limit="1/600s")
    async def mix() -> str:
        """Mix."""
        return "mixed"

    catalog.profile(Profile(name="chat", include=("core",)))
    return catalog, runs


async def rounds(client: httpx2.AsyncClient, what: str, *, answer: str = "red") -> list[dict[str, Any]]:
    """Call, answer what is asked, and return what came each time."""
    first = (await call(client, "paint", {"what": what}, meta=CAN_ASK))["result"]
    if "inputRequests" not in first:
        return [first]
    (key,) = first["inputRequests"]
    said = {key: {"action": "accept", "content": {"name": answer}}}
    params = {"name": "paint", "arguments": {"what": what}, "inputResponses": said}
    params["requestState"] = first["requestState"]
    return [first, answer_of(await post(client, "tools/call", params, meta=CAN_ASK))["result"]]


async def test_a_limit_is_charged_once_for_a_call_that_asks_in_the_middle() -> None:
    catalog, runs = limited()
    async with inside(http_app(catalog)) as client:
        asked, painted = await rounds(client, "wall")
        assert asked["resultType"] == "input_required"
        assert painted["content"][0]["text"] == "painted"
        (refused,) = await rounds(client, "roof")
        assert refused["_meta"]["pegboard/error"]["kind"] == "rate_limited"
    assert runs == ["wall red"]


async def test_what_such_a_call_calls_is_charged_each_time() -> None:
    catalog, runs = limited(nested=True)
    async with inside(http_app(catalog)) as client:
        await rounds(client, "wall")
    assert runs == ["ok", "rate_limited", "wall red"]


# ---------------------------------------------------------------- the yes to one call serves no other


def shop(buys: Any) -> tuple[Catalog, list[str]]:
    """Return a catalog whose tool `shop` calls `pay`, which needs a yes, as `buys` says; and what was paid."""
    catalog, paid = Catalog(), list[str]()

    @catalog.tool(groups="core", consent="always")
    async def pay(to: str) -> str:
        """Pay somebody."""
        paid.append(to)
        return "paid"

    @catalog.tool(name="shop", groups="core")
    async def shop_tool(ctx: CallContext) -> str:
        """Buy something."""

        async def pay_to(to: str) -> None:
            await catalog.view(ctx.plain()).call("pay", {"to": to}, raise_errors=True)

        await buys(ctx, pay_to)
        return "bought"

    catalog.profile(Profile(name="chat", include=("core",)))
    return catalog, paid


async def shopping(client: httpx2.AsyncClient, answers: list[Any]) -> list[list[str]]:
    """Call `shop` and answer every question with yes; return what was asked in each round."""
    asked: list[list[str]] = []
    params: dict[str, Any] = {"name": "shop", "arguments": {}}
    for answer in answers:
        result = answer_of(await post(client, "tools/call", params, meta=CAN_ASK))["result"]
        if "inputRequests" not in result:
            break
        questions = result["inputRequests"]
        asked.append([question["params"]["message"] for question in questions.values()])
        said = {key: {"action": answer, "content": {} if key in YES else {"name": "x"}} for key in questions}
        params = {"name": "shop", "arguments": {}, "inputResponses": said, "requestState": result["requestState"]}
    return asked


def to_whom(asked: list[list[str]]) -> list[str]:
    """Return whom each question for a yes is about; `?` for the tool's own."""
    return [message.partition('"to": "')[2].rstrip('"}') or "?" for [message] in asked]


async def test_the_yes_of_a_round_serves_no_other_call_of_a_later_round() -> None:
    rounds: list[int] = []

    async def buys(ctx: CallContext, pay_to: Any) -> None:
        rounds.append(1)
        await pay_to("bob" if len(rounds) < 3 else "eve")
        await ctx.ask("More?", schema=FORM)

    catalog, paid = shop(buys)
    async with inside(http_app(catalog)) as client:
        asked = await shopping(client, ["accept"] * 3)
    # Bob was agreed to; Eve, whom the third round would pay, is asked about for herself.
    assert (to_whom(asked), paid) == (["bob", "?", "eve"], ["bob"])


async def test_a_yes_pays_once_in_one_round_and_in_all_of_them() -> None:
    async def buys(ctx: CallContext, pay_to: Any) -> None:
        await pay_to("bob")
        await pay_to("bob")

    async def at_once(ctx: CallContext, pay_to: Any) -> None:
        for ended in await asyncio.gather(pay_to("bob"), pay_to("bob"), return_exceptions=True):
            if ended is not None:
                raise ended

    async def asks_later(ctx: CallContext, pay_to: Any) -> None:
        await pay_to("bob")
        await ctx.ask("More?", schema=FORM)

    for way in (buys, at_once, asks_later):
        catalog, paid = shop(way)
        async with inside(http_app(catalog)) as client:
            asked = await shopping(client, ["accept", "cancel"])
        assert (to_whom(asked)[0], paid) == ("bob", ["bob"]), way


async def test_a_call_that_was_agreed_to_and_asks_in_the_middle_is_agreed_to_still() -> None:
    catalog, ran = Catalog(), list[str]()

    @catalog.tool(groups="core", consent="always")
    async def shop(ctx: CallContext) -> str:
        """Ask, then buy."""
        for number in range(2):
            await ctx.ask(f"Question {number}?", schema=FORM)
        ran.append("bought")
        return "bought"

    catalog.profile(Profile(name="chat", include=("core",)))
    async with inside(http_app(catalog)) as client:
        asked = await shopping(client, ["accept"] * 4)
    assert (len(asked), ran) == (3, ["bought"])


async def test_two_calls_that_each_need_a_yes_are_agreed_to_one_inside_the_other() -> None:
    catalog, paid = Catalog(), list[str]()

    @catalog.tool(groups="core", consent="always")
    async def pay(to: str) -> str:
        """Pay somebody."""
        paid.append(to)
        return "paid"

    @catalog.tool(groups="core", consent="always")
    async def shop(ctx: CallContext) -> str:
        """Buy."""
        await catalog.view(ctx.plain()).call("pay", {"to": "bob"}, raise_errors=True)
        return "bought"

    catalog.profile(Profile(name="chat", include=("core",)))
    async with inside(http_app(catalog)) as client:
        asked = await shopping(client, ["accept"] * 3)
        assert (to_whom(asked), paid) == (["?", "bob"], ["bob"])
        # The yes to the outer call, which is still good, is none to the inner one.
        asked = await shopping(client, ["accept", "decline", "accept"])
    assert (to_whom(asked), paid) == (["?", "bob"], ["bob"])


async def test_a_no_inside_of_a_call_is_not_asked_for_again_in_the_next_round() -> None:
    async def asked_about(ctx: CallContext, pay_to: Any) -> None:
        try:
            await pay_to("bob")
        except CallError as error:
            if error.error.kind == "consent_required":
                raise
        await ctx.ask("More?", schema=FORM)

    catalog, paid = shop(asked_about)
    async with inside(http_app(catalog)) as client:
        asked = await shopping(client, ["decline", "accept", "accept"])
    assert (to_whom(asked), paid) == (["bob", "?"], [])
