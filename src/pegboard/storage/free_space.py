"""Free space: checks that the disk of a store has room for the next write."""

from __future__ import annotations

import shutil  # noqa: TID251 - opens no file
from pathlib import Path

from pegboard.storage.store_error import StoreError

LEAST_FREE_BYTES = 1 << 20  # with less, a batch of the audit or a page of documents does not fit


def check_free_space(path: Path) -> None:
    """Check the disk of a file that may not exist yet.

    Raises:
        StoreError: the disk is full, or nearly.
    """
    free = shutil.disk_usage(path.parent).free
    if free < LEAST_FREE_BYTES:
        raise StoreError(f"{str(path)!r}: the disk is full ({free // 1024} KiB are free)")
