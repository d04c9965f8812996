"""The stores of connections that tests run on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.connections.stores import fresh_database


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Return the file of an SQLite store, or the URL of an empty PostgreSQL database."""
    if request.param == "sqlite":
        return tmp_path / "c.db"
    return fresh_database(request.getfixturevalue("postgres_url"), f"conn_{os.urandom(6).hex()}")
