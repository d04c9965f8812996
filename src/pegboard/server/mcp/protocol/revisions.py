"""Revisions of the protocol that the server speaks."""

from __future__ import annotations

from typing import Final

VERSION: Final = "2026-07-28"
"""The revision without sessions."""
EARLIER_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The revisions with sessions, oldest first."""
LATEST_EARLIER: Final = EARLIER_VERSIONS[-1]
"""The one that a client gets that asks for a revision we do not know."""
