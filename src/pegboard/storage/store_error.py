"""StoreError: a store cannot be opened, read or written."""

from __future__ import annotations


class StoreError(ConnectionError):
    """A store cannot be opened, read or written. The message names the store and says what to do."""
