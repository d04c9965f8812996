"""Model retries: a busy endpoint is asked again, within the deadline and the budget, and never after it answered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelRequest

from pegboard.config import load_catalog
from pegboard.model.agent import AgentResult, ModelSpec
from pegboard.model.error import CallError, DefinitionError
from pegboard.models.language_models import LanguageModels
from pegboard.models.retries import RETRY_AFTER_S, RETRY_MOST_S, retried, wait_before_retry
from pegboard.testing import CallsTool, ModelFailure, ModelServer

AGENT = """
apiVersion: pegboard/v1
kind: Agent
metadata: {{name: writer}}
spec:
  model: {{provider: {provider}, name: m, base_url: '{url}', api_key: key{retries}}}
  orchestration: {{timeout_seconds: 20, max_iterations: 2}}
  tools: [{{group: core}}]
  {more}
"""
BUSY = ModelFailure(429, retry_after_s=0)
DOWN = ModelFailure(503, retry_after_s=0)


async def run(
    folder: Path,
    script: Sequence[object],
    provider: str = "openai_compatible",
    retries: str = "",
    more: str = "",
    saved: list[str] | None = None,
) -> tuple[AgentResult, int]:
    """Run the agent of a config; return how it ended, and how many requests its endpoint got."""
    saved = [] if saved is None else saved
    async with ModelServer(script) as server:  # type: ignore[arg-type] - each is a turn
        url = server.openai_url if provider == "openai_compatible" else server.url
        (folder / "pegboard.yaml").write_text("files: [writer.yaml]\n")
        (folder / "writer.yaml").write_text(AGENT.format(provider=provider, url=url, retries=retries, more=more))
        catalog, _ = load_catalog(folder / "pegboard.yaml", env={})

        @catalog.tool(groups="core")
        def save(text: str) -> str:
            """Save a text."""
            saved.append(text)
            return "saved"

        result = await catalog.agents.run("writer", "Write.")
        await catalog.close()
    return result, len(server.requests)


@pytest.mark.parametrize("provider", ["openai_compatible", "anthropic", "google"])
async def test_a_run_goes_on_after_a_busy_endpoint(tmp_path: Path, provider: str) -> None:
    result, requests = await run(tmp_path, [BUSY, DOWN, "Done"], provider)
    assert (result.status, result.output) == ("completed", "Done")
    # Each request was paid for, those that were refused too.
    assert (requests, result.usage.requests) == (3, 3)


async def test_a_tool_runs_once_however_often_the_model_is_asked(tmp_path: Path) -> None:
    saved: list[str] = []
    script = [DOWN, CallsTool("save", {"text": "x"}), BUSY, "Done"]
    # A retry is charged to the budget, and is not another iteration.
    more = "budgets: {requests: 4}"
    result, requests = await run(tmp_path, script, more=more, saved=saved)
    assert (result.output, requests, saved) == ("Done", 4, ["x"])


@pytest.mark.parametrize(
    ("script", "retries", "more", "kind"),
    [
        # The answer had begun.
        ([["Some", ModelFailure(503)], "Again"], "", "", "upstream_unavailable"),
        ([ModelFailure(401), "Again"], "", "", "upstream_auth"),
        ([ModelFailure(404), "Again"], "", "", "upstream_error"),
        ([BUSY, "Again"], "", "budgets: {requests: 1}", "rate_limited"),
        ([BUSY, "Again"], ", retries: {max: 0}", "", "rate_limited"),
        # Longer than the run may take.
        ([ModelFailure(429, retry_after_s=30), "Again"], "", "", "rate_limited"),
        ([ModelFailure(503, retry_after_s=30), "Again"], "", "", "upstream_unavailable"),
    ],
)
async def test_a_request_is_not_sent_again(
    tmp_path: Path, script: Sequence[object], retries: str, more: str, kind: str
) -> None:
    result, requests = await run(tmp_path, script, retries=retries, more=more)
    assert (requests, result.status) == (1, "failed")
    assert result.error is not None
    assert result.error.kind == kind
    if script[0] == ModelFailure(429, retry_after_s=30):
        assert result.error.retry_after_s == 30


async def test_the_last_failure_is_told_after_as_many_retries_as_are_declared(tmp_path: Path) -> None:
    result, requests = await run(tmp_path, [BUSY, BUSY, DOWN, "Late"])
    assert result.error is not None
    assert (requests, result.error.kind) == (3, "upstream_unavailable")
    result, requests = await run(tmp_path, [BUSY, BUSY, DOWN, "In time"], retries=", retries: {max: 3}")
    assert (requests, result.output) == (4, "In time")


async def test_one_answer_without_an_agent_is_asked_for_again_too() -> None:
    models = LanguageModels(lambda _: None)
    async with ModelServer([DOWN, "Yes.", DOWN, "No."]) as server:
        spec = ModelSpec(provider="openai_compatible", name="m", base_url=server.openai_url)
        assert await models.complete(spec, "Well?") == "Yes."
        once = ModelSpec(provider="openai_compatible", name="m", base_url=server.openai_url, max_retries=0)
        with pytest.raises(CallError):
            await models.complete(once, "Well?")
    await models.close()


def test_how_many_retries_there_may_be_is_checked(tmp_path: Path) -> None:
    config = "models: {default: {provider: openai, name: m, api_key: k, retries: {max: 11}}}\n"
    (tmp_path / "pegboard.yaml").write_text(config)
    with pytest.raises(DefinitionError, match="must be at most 10"):
        load_catalog(tmp_path / "pegboard.yaml", env={})


async def test_waits_grow_vary_and_follow_the_endpoint() -> None:
    busy = ModelHTTPError(429, "m")
    assert [wait_before_retry(busy, number, lambda: 1.0) for number in range(6)] == [0.5, 1, 2, 4, 8, RETRY_MOST_S]
    assert wait_before_retry(busy, 1, lambda: 0.0) == 0.5
    assert wait_before_retry(ModelHTTPError(529, "m", headers={"retry-after": "7"}), 0, lambda: 0.0) == 7
    longer = ModelHTTPError(503, "m", headers={"retry-after": f"{RETRY_AFTER_S + 1:.0f}"})
    assert wait_before_retry(longer, 0, lambda: 0.0) is None
    waited: list[float] = []

    async def note(wait_s: float) -> None:
        waited.append(wait_s)

    models = LanguageModels(lambda _: None)
    async with ModelServer([]) as server:
        url = server.openai_url
    # Nobody listens there any more.
    model = models.model(ModelSpec(provider="openai_compatible", name="m", base_url=url))
    with pytest.raises(Exception, match="Connection error"):
        await retried(
            lambda: model_request(model, [ModelRequest.user_text_prompt("Hello")]),
            max_retries=2,
            left_s=lambda: 60.0,
            sleep=note,
            dice=lambda: 1.0,
        )
    assert waited == [0.5, 1.0]
    await models.close()
