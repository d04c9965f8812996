"""A library of its own for each test, on either store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workspace.library import Library, Place
from tests.workspace.postgres_databases import Databases


@pytest.fixture(scope="session")
def databases(postgres_url: str) -> Databases:
    return Databases(postgres_url)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where a store may be: nothing is there."""
    return tmp_path if request.param == "sqlite" else request.getfixturevalue("databases").empty()


@pytest.fixture
def library(place: Place) -> Iterator[Library]:
    made = Library(place)
    yield made
    made.store.close()
