"""analyze_document: an agent answers from one document, cites what stands there, and ends within its limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pegboard import CallBudget, Catalog, Policy, Secret, ToolContext
from pegboard.config import load_catalog
from pegboard.model.agent import ModelSpec
from pegboard.model.record import replace
from pegboard.models.language_models import LanguageModels
from pegboard.testing import CallsTool, EventRecorder, Hold, ModelFailure, ModelRequest, ModelServer
from pegboard.workspace.tools.toolset import entries
from tests.workspace.library import ON_SQLITE_ALONE, Library, in_space

LEASE = (
    "Lease\n\nThe tenant pays 900 euro on the first of each month.\n"
    "Either side may end it\nwith three months' notice.\n"
)
PAD = "Nothing of note is said here.\n" * 3_000
# With signs that models write otherwise.
ENDING = "The end’s “blue” – truly…"
OTHER = "canary-of-another-document: the tenant pays nothing."
CITED = CallsTool("cite", {"quote": "Either side may end it with three months' notice."})


class Analysing:
    """A library whose model is played."""

    def __init__(self, library: Library, server: ModelServer, ids: dict[str, str]) -> None:
        self.library, self.server, self.ids, self.play = library, server, ids, self.scripted
        self.script: list[Any] = []

    async def reopen(self, analysis_s: float) -> None:
        """Have the tools on a model of their own, with so much time."""
        await self.library.catalog.close()
        url = self.server.openai_url
        model = ModelSpec(provider="openai_compatible", name="m", base_url=url, api_key=Secret("k"))
        self.library.catalog = Catalog()
        tools = entries(self.library.store, sql_s=5.0, analyst_model=model, analysis_s=analysis_s)
        self.library.catalog.registry.add(*tools)

    def scripted(self, request: ModelRequest) -> Any:
        return self.script[min(request.turns, len(self.script) - 1)]

    async def analyse(
        self, *script: Any, ctx: ToolContext | None = None, callbacks: object = None, of: str = "lease.txt", **args: Any
    ) -> Any:
        self.script[:] = script
        self.server.requests.clear()
        asked = {"document_id": self.ids[of], "question": "How can it be ended?", **args}
        view = self.library.catalog.view(ctx or in_space("s1"))
        result = await view.call("analyze_document", asked, callbacks=callbacks)
        if result.error is not None:
            return {"error": [result.error.kind, result.error.message]}
        return result.structured


@pytest.fixture
async def analysing(library: Library) -> AsyncIterator[Analysing]:
    ids = await library.add("s1", "data", {"lease.txt": LEASE, "long.txt": LEASE + PAD + ENDING + "\n"})
    ids |= await library.add("s1", "more", {"other.txt": OTHER, "empty.txt": ""})
    ids |= await library.add("s2", "data", {"foreign.txt": OTHER})
    analysing: Analysing | None = None
    with ModelServer(lambda request: analysing.play(request) if analysing else "") as server:
        analysing = Analysing(library, server, ids)
        await analysing.reopen(600.0)
        yield analysing
        await library.catalog.close()


async def test_the_answer_comes_with_the_words_that_stand_in_the_document(analysing: Analysing) -> None:
    recorder = EventRecorder()
    made_up = CallsTool("cite", {"quote": "with two months' notice"})
    given = await analysing.analyse(
        [CallsTool("read_document", {}), CallsTool("grep_documents", {"pattern": "notice"})],
        [CITED, made_up],
        [CITED, "By three ", "months' notice."],
        "By three months' notice.",
        callbacks=recorder,
    )
    start = LEASE.index("Either")
    quote = "Either side may end it\nwith three months' notice."
    assert given == {
        "document_id": analysing.ids["lease.txt"],
        "answer": "By three months' notice.",
        "citations": [{"start": start, "end": start + len(quote), "quote": quote}],
        "steps": 4,
        "usage": {"tool_calls": 5, "input_tokens": 40, "output_tokens": 20},
        "stopped_reason": None,
    }
    first, *_, last = analysing.server.requests
    assert set(first.tools) == {"read_document", "search_documents", "grep_documents", "cite"}
    # Quick: it begins with passages that fit.
    assert "pays 900 euro" in first.prompt
    assert "are not in the document" in str([message.outcomes for message in last.messages])
    # Whoever observes the call observes what the analyst does.
    types = recorder.types
    assert (types[0], types[1], types[-2], types[-1]) == (
        "on_tool_call", "on_sub_agent_start", "on_sub_agent_end", "on_tool_result",
    )  # fmt: skip
    assert types.count("on_sub_agent_tool_call") == types.count("on_sub_agent_tool_result") == 5
    assert "".join(e.payload["text"] for e in recorder.events if e.type == "on_sub_agent_chunk").count("notice") == 2


async def test_no_argument_of_the_analyst_leads_to_another_document(analysing: Analysing) -> None:
    foreign = [analysing.ids["other.txt"], analysing.ids["foreign.txt"]]
    calls = [CallsTool("read_document", {"document_id": each}) for each in foreign]
    calls += [CallsTool("search_documents", {"query": "tenant", "document_ids": foreign, "limit": 50})]
    calls += [CallsTool("grep_documents", {"pattern": "tenant"}), CallsTool("search_documents", {"query": "canary"})]
    calls += [CallsTool("cite", {"quote": OTHER}), CallsTool("docs__list_sources", {}), CallsTool("list_sources", {})]
    calls += [CallsTool("query_documents", {"sql": "select 1"}), CallsTool("analyze_document", {})]
    given = await analysing.analyse(calls, "Nothing.")
    assert given["citations"] == []
    told = str([request.body for request in analysing.server.requests])
    assert "900 euro" in told
    assert "the tenant pays nothing" not in told.replace(OTHER, "")
    for of in ("foreign.txt",):
        unknown = await analysing.library.call(
            "analyze_document", in_space("s1"), document_id="doc_0000000000000000", question="What?"
        )
        given = await analysing.analyse("x", of=of)
        assert given["error"][0] == "not_found"
        assert given["error"][1].replace(analysing.ids[of], "doc_0000000000000000") == unknown["error"][1]
        assert analysing.server.requests == []
    assert (await analysing.analyse("x", of="empty.txt"))["error"][0] == "invalid_arguments"


@ON_SQLITE_ALONE
async def test_it_stops_after_its_steps_and_brings_what_there_is(analysing: Analysing) -> None:
    given = await analysing.analyse(["I look. ", CITED], max_steps=2, depth="deep")
    assert (given["answer"], given["stopped_reason"], given["steps"]) == ("I look. I look. ", "max_steps", 2)
    assert len(given["citations"]) == 1
    # Deep: it reads by itself.
    assert "900 euro" not in analysing.server.requests[0].prompt
    assert "2 steps" in analysing.server.requests[0].system


@ON_SQLITE_ALONE
async def test_a_citation_is_found_far_into_a_long_document(analysing: Analysing) -> None:
    given = await analysing.analyse(
        [CallsTool("cite", {"quote": 'The  end\'s\n"blue" - truly...'})], "Blue.", of="long.txt"
    )
    [citation] = given["citations"]
    assert (citation["start"], citation["quote"]) == (len(LEASE + PAD), ENDING)


@ON_SQLITE_ALONE
async def test_time_that_is_over_brings_a_part_and_an_end_for_observers(analysing: Analysing) -> None:
    hold = Hold()
    for seconds in (1.0, 4.0, 16.0, 64.0):
        await analysing.reopen(seconds)
        recorder = EventRecorder()
        given = await analysing.analyse([CITED, "So far: "], [hold], callbacks=recorder)
        [end] = [event.payload["status"] for event in recorder.events if event.type == "on_sub_agent_end"]
        assert (end, recorder.types.count("on_tool_result")) == ("timeout", 1)
        if "error" not in given:
            break
        # A busy machine may need longer to come so far, and to bring it.
        assert given["error"][0] == "timeout"
    assert (given["answer"], given["stopped_reason"], len(given["citations"])) == ("So far: ", "timeout", 1)
    hold.release()


@ON_SQLITE_ALONE
async def test_its_time_limit_begins_after_the_import_of_its_provider(
    analysing: Analysing, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, skipped_s = asyncio.get_running_loop(), 0.0
    real = loop.time
    monkeypatch.setattr(loop, "time", lambda: real() + skipped_s)

    def load(self: LanguageModels, spec: ModelSpec) -> None:
        nonlocal skipped_s
        skipped_s = 3_600.0

    monkeypatch.setattr(LanguageModels, "load", load)
    await analysing.reopen(600.0)
    given = await analysing.analyse("By three months' notice.")
    assert (given["answer"], skipped_s) == ("By three months' notice.", 3_600.0)


async def test_a_budget_that_is_used_up_brings_a_part(analysing: Analysing) -> None:
    caller = replace(in_space("s1"), budget=CallBudget(3))
    given = await analysing.analyse([CITED, "So far: "], [CITED, CITED], ctx=caller)
    assert (given["answer"], given["stopped_reason"], len(given["citations"])) == ("So far: ", "budget_exceeded", 1)


@ON_SQLITE_ALONE
async def test_a_call_that_is_cancelled_leaves_the_model(analysing: Analysing) -> None:
    hold, recorder = Hold(), EventRecorder()
    call = asyncio.create_task(analysing.analyse(["Half", hold], callbacks=recorder))
    await asyncio.to_thread(hold.reached.wait, 60)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.to_thread(analysing.server.wait_until, lambda server: len(server.left) == 1)
    [end] = [event.payload["status"] for event in recorder.events if event.type == "on_sub_agent_end"]
    assert end == "cancelled"
    given = await analysing.analyse(ModelFailure(500))
    assert given["error"][0] == "upstream_unavailable"


@ON_SQLITE_ALONE
async def test_what_is_denied_to_the_caller_is_denied_to_the_analyst_and_allowing_the_tool_is_enough(
    analysing: Analysing,
) -> None:
    for policy, tools in (
        (Policy(allow=("analyze_document",)), {"read_document", "search_documents", "grep_documents", "cite"}),
        (Policy(deny=("read_*", "docs.grep_documents")), {"search_documents", "cite"}),
        (Policy(allow=("docs__*",), deny=("*search*",)), {"read_document", "grep_documents", "cite"}),
    ):
        caller = ToolContext(user_id="ann", space_id="s1", policy=policy)
        assert (await analysing.analyse("Done.", ctx=caller))["answer"] == "Done."
        assert set(analysing.server.requests[0].tools) == tools


async def test_it_is_hidden_with_a_reason_where_no_model_is_configured(tmp_path: Path) -> None:
    path = tmp_path / "pegboard.yaml"
    by_default = "models: {default: 'openai:gpt-5.2'}"
    for models, shown in (("", False), (by_default, True), ("models: {m: 'openai:x'}", False)):
        path.write_text(f"workspace: {{space: s1}}\n{models}\n")
        catalog = load_catalog(path, env={"OPENAI_API_KEY": "k"})[0]
        view = catalog.view(in_space("s1"))
        assert ("docs__analyze_document" in view.names() or "analyze_document" in view.names()) == shown
        if not shown:
            assert "a model is configured (models:)" in view.why("docs.analyze_document").reason
            missing = await view.call("analyze_document", {"document_id": "x", "question": "y"})
            assert missing.error is not None
            assert missing.error.kind == "not_found"
        await catalog.close()
