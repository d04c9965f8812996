"""First openings: several processes or threads that open a new store at the same time."""

import threading
from pathlib import Path

import apsw

from pegboard.storage.sqlite_file import open_sqlite


def test_a_new_file_that_several_open_at_once_is_opened_by_all(tmp_path: Path) -> None:
    # Without a retry SQLite refused about one of forty here: it does not wait for the switch to write-ahead logging.
    failures: list[apsw.Error] = []

    def open_after(barrier: threading.Barrier, path: Path) -> None:
        barrier.wait()
        try:
            open_sqlite(path, busy_s=30.0, is_wal=True).close()
        except apsw.Error as error:
            failures.append(error)

    for number in range(60):
        barrier, path = threading.Barrier(4), tmp_path / f"{number}.db"
        threads = [threading.Thread(target=open_after, args=(barrier, path)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []
