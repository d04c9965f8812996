"""The settings that every test shares: the event loop, the markers, sizes, coverage, no deadline one could miss."""

import gc
import importlib
import os
import ssl
import sys
from collections.abc import Generator
from functools import cache
from pathlib import Path
from pkgutil import walk_packages
from random import Random
from typing import Any

import coverage
import httpcore2
import pytest
from hypothesis import HealthCheck, settings

from tests.builtin.database import postgres_url
from tests.sizes import IS_SOAK, examples

__all__ = ["postgres_url"]

HERE = Path(__file__).parent

MARKERS = {
    "e2e": "runs programs of others that are installed for this alone (make e2e)",
    "shared": "reads the material in the folder that PEGBOARD_SHARED names (make test-shared)",
    "slow": "takes more than a few seconds",
    "soak": "runs for minutes (make soak)",
}


# Branches of `core/` and `model/` are measured in the workers that `make unit` starts, while these run: tracing makes
# Python nearly three times slower, so what tests whole programs, other rooms, or with many examples goes without.
MEASURED = (
    "agents/", "authoring/",
    "cli/test_discovery_commands", "cli/test_messages", "config/test_call_intent",
    "config/test_predicates", "config/test_profiles", "config/test_refusals", "config/test_webhook", "consent/",
    "core/", "fuzz/", "limits/test_redis_limits", "model/", "properties/test_consent_text",
    "properties/test_schema_judge", "providers/test_dialects", "repair/", "security/test_config_names",
    "tasks/test_behaviour", "tasks/test_places", "tasks/test_refused_runs",
    "security/test_execution", "security/test_kept_contexts", "security/test_meanwhile", "security/test_permission",
    "security/test_secrets_in_definitions",
    "server/test_api", "server/test_app_tools", "server/test_calls", "server/test_consent", "server/test_fair_shares",
    "server/test_offers", "server/test_outcomes", "server/test_tasks_mcp",
    "test_builders", "test_c", "test_defaults", "test_lifecycle", "test_names", "test_offers", "test_testing",
    "test_declared_again", "test_host_mistakes", "test_toolsets",
    "upstream_mcp/test_loops", "workspace/test_analysis", "workspace/test_discovery",
)  # fmt: skip
UNMEASURED_MARKS = ("hypothesis", "slow")


class Measuring:
    """Coverage of one process: of the modules as they are imported, and of tests; each has its own file of results."""

    def __init__(self, worker: str) -> None:
        self._coverage = coverage.Coverage(data_suffix=f"{worker}.{os.getpid()}")
        self._is_on = False
        self._turn(True)
        # All of them here, so that nothing else that is collected need be traced.
        for name in ("pegboard.core", "pegboard.model"):
            for module in walk_packages(importlib.import_module(name).__path__, f"{name}."):
                importlib.import_module(module.name)
        self._turn(False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        is_measured = item.path.relative_to(HERE).as_posix().startswith(MEASURED)
        self._turn(is_measured and not any(map(item.get_closest_marker, UNMEASURED_MARKS)))
        return (yield)

    def pytest_unconfigure(self) -> None:
        self._turn(False)
        self._coverage.save()

    def _turn(self, is_on: bool) -> None:
        if is_on != self._is_on:
            (self._coverage.start if is_on else self._coverage.stop)()
            self._is_on = is_on


WORKER = os.environ.get("PYTEST_XDIST_WORKER")
MEASURING = Measuring(WORKER) if WORKER and os.environ.get("PEGBOARD_COVERAGE") else None


def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    if MEASURING is not None:
        config.pluginmanager.register(MEASURING)


# Set by `make flaky`: tests run in another order, and properties are tried with other examples.
SEED = os.environ.get("PEGBOARD_SHUFFLE")

# Otherwise the examples are the same in every run, except in `make soak`, which looks for new ones. None is ever too
# slow, since the machine may be busy.
settings.register_profile(
    "pegboard", deadline=None, max_examples=examples(400), derandomize=not IS_SOAK and SEED is None,
    suppress_health_check=[HealthCheck.too_slow], **({} if SEED is None else {"database": None}),
)  # fmt: skip
settings.load_profile("pegboard")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse names that differ between processes, since the workers of one run must agree on them; shuffle if asked."""
    if unstable := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"These tests need `ids=` without addresses: {unstable}")
    if SEED is not None:
        # File by file, so that the servers that a file shares start once.
        items.sort(key=lambda item: [_drawn(item.nodeid.partition("::")[0]), _drawn(item.nodeid)])


def _drawn(name: str) -> float:
    return Random(f"{SEED} {name}").random()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the million objects that collecting tests makes out of every garbage collection, then and later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def _certificates_are_read_once() -> Generator[None]:
    """Share the context of the system's certificates: reading it takes 20 ms, and tests make a thousand clients."""
    read = httpcore2.default_ssl_context

    @cache
    def context(trust_env: bool, *places: str | None) -> ssl.SSLContext:
        return read(_trust_env=trust_env)

    def shared(*, _trust_env: bool = True) -> ssl.SSLContext:
        return context(_trust_env, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", shared)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Keep what one test serves and does not close from being the default catalog of the next."""
    default: Any = getattr(sys.modules.get("pegboard.catalog"), "default_catalog", None)
    shared = None if default is None else default._shared
    try:
        return (yield)
    finally:
        if default is not None:
            default._shared = shared
