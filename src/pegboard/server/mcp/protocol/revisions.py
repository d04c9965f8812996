"""The protocol revisions that the server supports."""

from __future__ import annotations

from typing import Final

VERSION: Final = "2026-07-28"
"""The revision without sessions."""
EARLIER_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The revisions with sessions, oldest first."""
LATEST_EARLIER: Final = EARLIER_VERSIONS[-1]
"""The revision offered to a client that asks for an unknown one."""
