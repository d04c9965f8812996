from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.limits.server import RedisServer, redis_server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as running:
        yield running
