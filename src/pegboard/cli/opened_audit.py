"""Opened audit: the record of calls that a config names, for commands."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from pegboard.audit.audit_store import AuditStore
from pegboard.cli.command_error import CommandError, Exit
from pegboard.config import Config, load
from pegboard.config.audits import audit_store_of
from pegboard.extras import needs_package
from pegboard.model.error import DefinitionError
from pegboard.storage.store_error import StoreError


@contextmanager
def opened_audit(path: Path) -> Generator[tuple[Config, AuditStore]]:
    """Open the audit that the config at `path` names, and report what cannot be done with it.

    Raises:
        CommandError: it names none, or it cannot be used.
    """
    config = load(path, env=os.environ)
    if config.audit is None:
        text = f'{str(path)!r} has no audit. Add `audit: {{store: "sqlite:./pegboard.db"}}`.'
        raise CommandError(text, kind="no_store")
    try:
        yield config, audit_store_of(config)
    except ImportError as error:
        raise CommandError(needs_package(error.name, "postgres"), kind="store_refused", code=Exit.REFUSED) from None
    except (StoreError, DefinitionError, OSError) as error:
        raise CommandError(str(error), kind="store_refused", code=Exit.REFUSED) from None
