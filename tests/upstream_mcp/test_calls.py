"""Calls of tools that an MCP server runs, over each transport."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pegboard.model.error import CallError
from pegboard.sources.mcp.server_settings import ServerSettings
from tests.upstream_mcp.parts import free_port, http_server, on_stdio, running, until, view_of


async def exercise(settings: ServerSettings) -> None:
    async with running(settings) as (catalog, source):
        assert source.state().status == "ok"
        view = view_of(catalog)
        assert {"up__add", "up__say_hello", "up__fail"} <= set(view.names())
        added = await view.call("up__add", {"a": 1, "b": 2})
        assert (added.structured, added.is_error) == ({"total": 3}, False)
        assert (await view.call("up__say_hello", {"name": "Ann"})).text == "hello Ann"


async def test_a_stdio_server_is_listed_and_called() -> None:
    await exercise(on_stdio())


@pytest.mark.parametrize(("kind", "path", "transport"), [("http", "mcp", "http"), ("sse", "sse", "sse")])
async def test_a_server_on_http_is_listed_and_called(kind: str, path: str, transport: Any) -> None:
    port = free_port()
    async with http_server(kind, port):
        await exercise(ServerSettings(name="up", transport=transport, url=f"http://127.0.0.1:{port}/{path}"))


async def test_a_server_said_to_speak_http_that_speaks_sse_only_is_reached_all_the_same() -> None:
    port = free_port()
    async with http_server("sse", port):
        await exercise(ServerSettings(name="up", transport="http", url=f"http://127.0.0.1:{port}/sse"))


async def test_what_a_call_meets_has_a_kind_of_its_own(tmp_path: Path) -> None:
    async with running(on_stdio(timeout_s=30)) as (catalog, source):
        view = view_of(catalog)
        failed = await view.call("up__fail", {})
        assert failed.is_error
        assert failed.error is not None
        assert failed.error.kind == "tool_error"
        assert "which are data: Error executing tool fail" in failed.error.message

        refused = await view.call("up__add", {"a": "1", "b": 2})
        assert refused.error is not None
        assert (refused.error.kind, refused.error.details["problems"][0]["path"]) == ("invalid_arguments", "$.a")  # type: ignore[index]

        mark = tmp_path / "mark"
        slow = asyncio.create_task(view.call("up__slow", {"seconds": 600, "mark": str(mark)}))
        await until(lambda: has_text(mark, "began"))
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        await until(lambda: has_text(mark, "cancelled"))
        assert source.state().status == "ok"


async def test_the_deadline_of_a_call_ends_it_at_the_server_too(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    async with running(on_stdio(own={"timeout_s": 0.5})) as (catalog, _):
        # A busy machine may not begin it before the deadline.
        while not mark.exists():
            late = await view_of(catalog).call("up__slow", {"seconds": 600, "mark": str(mark)})
            assert late.error is not None
            assert (late.error.kind, late.error.outcome_unknown) == ("timeout", True)
        await until(lambda: has_text(mark, "cancelled"))


def has_text(mark: Path, text: str) -> bool:
    return mark.exists() and mark.read_text() == text


async def test_progress_comes_down_to_the_caller() -> None:
    told: list[tuple[float, str]] = []

    class Watching:
        def on_progress(self, event: object) -> None:
            payload = event.payload  # type: ignore[attr-defined]
            told.append((payload["fraction"], payload["message"]))

    async with running(on_stdio()) as (catalog, _):
        done = await view_of(catalog, callbacks=Watching()).call("up__steps", {"count": 4})
        assert done.text == "done"
    assert told
    assert told[0] == (0.25, "step 1")


async def test_a_tool_that_is_added_later_is_listed_when_the_server_says_so() -> None:
    async with running(on_stdio(trust="any")) as (catalog, _):
        seen: list[int] = []
        catalog.subscribe(lambda: seen.append(1))
        assert "up__grown" not in view_of(catalog).names()
        assert not (await view_of(catalog).call("up__grow", {})).is_error
        await until(lambda: "up__grown" in view_of(catalog).names())
        assert seen


async def test_only_skip_rename_and_groups_are_honoured() -> None:
    settings = on_stdio(
        only=("*a*", "pid"),
        skip=("fail", "ask"),
        rename={"pid": "process"},
        groups=("files",),
        tool_groups={"add": ("sums", "files"), "say*": ("talk",)},
    )
    async with running(settings) as (catalog, source):
        names = {name: entry.spec.groups for entry in view_of(catalog).tools() for name in [entry.wire_name]}
        assert names == {
            "up__add": ("sums", "files"),
            "up__say_hello": ("talk",),
            "up__process": ("files",),
        }
        assert source.groups() == {"files", "sums", "talk"}
        assert (await view_of(catalog).call("up__process")).text.isdigit()


async def test_a_call_of_a_server_that_is_not_started_says_so() -> None:
    async with running(on_stdio()) as (catalog, source):
        view = view_of(catalog)
        await source.stop()
        with pytest.raises(CallError, match="is not started"):
            await view.call("up__add", {"a": 1, "b": 1}, raise_errors=True)


class Person:
    """The client of a caller, with a person behind it who answers every question in the same way."""

    supports_ui = False

    def __init__(self, answer: Any) -> None:
        self.answer, self.asked = answer, list[tuple[str, Any]]()

    async def elicit(self, message: str, schema: Any = None) -> Any:
        self.asked.append((message, schema))
        if isinstance(self.answer, CallError):
            raise self.answer
        return self.answer

    async def approve(self, request: object) -> bool | None:
        return None


@pytest.mark.parametrize(
    ("answer", "text"),
    [({"colour": "red"}, "accept red asked"), (CallError("consent_declined", "no"), "decline  asked")],
)
async def test_what_the_server_asks_reaches_the_person_behind_the_call(answer: Any, text: str) -> None:
    person = Person(answer)
    async with running(on_stdio()) as (catalog, _):
        result = await view_of(catalog, client=person).call("up__ask", {})
        assert result.text == text
    ((message, schema),) = person.asked
    assert "Which colour?" in message
    assert list(schema["properties"]) == ["colour"]


async def test_without_a_person_the_server_is_told_no() -> None:
    async with running(on_stdio()) as (catalog, _):
        assert (await view_of(catalog).call("up__ask", {})).text == "decline  asked"
