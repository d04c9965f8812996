"""On two workers: a plugin of pytest, by which what the tests serve over HTTP is served by two that hear each other.

    make unit ARGS="-p tests.security.on_two_workers tests/security"

Each app becomes a pair over one catalog, with the same keys and a bus of their own, whose requests take turns; what is
served as a process gets `--workers 2`. What one worker alone remembers is another's unknown; the tests of that are
named here, and left out.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

import pegboard
from pegboard.server import app as app_module
from tests.limits.server import redis_server
from tests.server import processes

OF_ONE_WORKER = frozenset(
    {
        # Without `consents: {store: …}` only the worker that asked takes an answer: tests/consent/test_workers.py has
        # the rest.
        "test_mcps_08_a_state_with_a_bit_flipped_or_a_part_missing_is_refused",
        # What the SDK of MCP asks is asked where there is one worker alone.
        "test_so_it_is_where_the_sdk_of_mcp_asks",
        "test_what_the_sdk_asks_is_answered_by_who_has_all_roles_still",
        # Takes from the process that it began, which here is the parent, and answers nothing.
        "test_exec_19_a_server_without_disk_descriptors_or_memory_says_so_and_goes_on_when_there_are_some",
    }
)
_open = ExitStack()
_http_app, _serving = app_module.http_app, processes.serving


def pytest_configure() -> None:
    bus = _open.enter_context(redis_server(Path(tempfile.mkdtemp()))).uri

    def paired(catalog: Any, **options: Any) -> Starlette:
        shared = {"keys": (b"k" * 32,), "bus": bus, **options}
        return _as_one(_http_app(catalog, **shared), _http_app(catalog, **shared))

    def served(folder: Path, *options: str, **more: Any) -> AbstractAsyncContextManager[processes.Server]:
        workers = () if {"--workers", "--stdio"} & set(options) else ("--workers", "2")
        return _serving(folder, *options, *workers, **more)

    app_module.http_app = pegboard.__dict__["http_app"] = paired
    processes.serving = served


def pytest_unconfigure() -> None:
    _open.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if getattr(item, "originalname", "") in OF_ONE_WORKER:
            item.add_marker(pytest.mark.skip(reason="of one worker alone"))


def _as_one(first: Starlette, second: Starlette) -> Starlette:
    """Return the first app, which gives every other request to the second."""
    turns = itertools.cycle([first.build_middleware_stack(), second.build_middleware_stack()])
    own, other = first.router.lifespan_context, second.router.lifespan_context
    ends = first.state.end_streams, second.state.end_streams

    async def turn(scope: Any, receive: Any, send: Any) -> None:
        await next(turns)(scope, receive, send)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[Any]:
        async with other(second), own(app) as state:
            yield state

    def end_streams() -> None:
        for end in ends:
            end()

    first.middleware_stack, first.router.lifespan_context = turn, lifespan
    first.state.end_streams = end_streams
    return first
