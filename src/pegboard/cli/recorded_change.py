"""Recorded change: write what a command changed into the audit of the config, if it has one."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Mapping

from pegboard.cli.terminal import Terminal
from pegboard.config.audits import record_change
from pegboard.config.config import Config
from pegboard.core.ports import AuditEvent
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSONValue
from pegboard.storage.store_error import StoreError


def person() -> str:
    """Return the name of the person who runs the command, for records."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError, ImportError):
        return "cli"


def note_change(config: Config, terminal: Terminal, event: AuditEvent, detail: Mapping[str, JSONValue]) -> None:
    """Record a change that was made. An audit that cannot be written is reported: the change is not taken back."""
    try:
        record_change(config, event, detail, by=person())
    except (StoreError, DefinitionError, ImportError, OSError) as error:
        terminal.note(f"warning: This change is not in the audit, which cannot be written: {error}")


async def anote_change(config: Config, terminal: Terminal, event: AuditEvent, detail: Mapping[str, JSONValue]) -> None:
    """Record a change as `note_change` does, without blocking the loop."""
    await asyncio.to_thread(note_change, config, terminal, event, detail)
