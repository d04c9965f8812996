"""Audits: the audit that a config declares, and its store."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from pegboard.audit.audit import Audit
from pegboard.audit.audit_row import AuditRow
from pegboard.audit.audit_store import AuditStore
from pegboard.audit.audit_writer import AuditWriter
from pegboard.audit.call_rows import CallRows
from pegboard.audit.hash_chain import HeadSigner
from pegboard.audit.jsonl_audit import JsonlAudit
from pegboard.audit.sql_audit import SCHEMA, SqlAudit
from pegboard.config.config import Config
from pegboard.config.yaml.problems import Report
from pegboard.core.ports import AuditEvent
from pegboard.extras import needs_package
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSONValue
from pegboard.model.secret import Secret
from pegboard.storage.database import database_of
from pegboard.storage.store_uri import StoreUri

AUDIT_BUSY_S = 5.0  # seconds to wait for another process that has locked the store
_JSONL = "jsonl:"
_DAY_S = 86_400.0


def audit_of(config: Config, report: Report) -> Audit | None:
    """Return the audit that a config declares; `None` without one, or if it cannot be used."""
    declared = config.audit
    if declared is None:
        return None
    form = declared.value
    try:
        store = audit_store_of(config)
    except ImportError as error:
        report.add((declared.at / "store").problem(needs_package(error.name, "postgres")))
        return None
    except DefinitionError as error:
        report.add((declared.at / "store").problem(str(error)))
        return None
    writer = AuditWriter(
        store,
        CallRows(has_bodies=form.bodies == "redacted"),
        signer_of(config),
        keep_s=form.keep_days * _DAY_S,
    )
    return Audit(writer, is_required=form.required)


def record_change(config: Config, event: AuditEvent, detail: Mapping[str, JSONValue], *, by: str) -> None:
    """Record a change of rights in the config's audit, if it has one; for processes that make no calls.

    Raises:
        StoreError: the store cannot be used.
        DefinitionError: its place cannot be used.
        ImportError: psycopg is not installed.
    """
    if config.audit is None:
        return
    store, now = audit_store_of(config), time.time()
    row = CallRows(has_bodies=False).unsealed(AuditRow(event=event, at=now, credential=by, detail=detail))
    try:
        store.append([row], signer_of(config), closes=True, now=now)
    finally:
        store.close()


def signer_of(config: Config) -> HeadSigner:
    """Return the signer for the heads of the config's audit."""
    key = None if config.audit is None else config.audit.value.sign_key
    # A variable that expands to nothing is not a key: anybody could sign with it.
    return HeadSigner((Secret(key) if isinstance(key, str) else key) or None)


def audit_file_of(config: Config) -> Path | None:
    """Return the file of an audit in JSONL; `None` for one in a database."""
    if config.audit is None:
        return None
    value = config.audit.value.store
    text = value.reveal() if isinstance(value, Secret) else value
    return config.path.absolute().parent / text.removeprefix(_JSONL) if _is_jsonl(text) else None


def _is_jsonl(text: str) -> bool:
    return text.startswith(_JSONL) and len(text) > len(_JSONL)


def audit_store_of(config: Config) -> AuditStore:
    """Return the unopened store of the config's audit.

    Raises:
        DefinitionError: its URI or its place cannot be used.
        ImportError: psycopg is not installed.
    """
    assert config.audit is not None
    if (file := audit_file_of(config)) is not None:
        return JsonlAudit(file)
    value, folder = config.audit.value.store, config.path.absolute().parent
    uri = StoreUri.parse(value, folder=folder, others=("postgresql://HOST/NAME", "jsonl:FILE"))
    database = database_of(uri, SCHEMA, busy_s=AUDIT_BUSY_S)
    database.check_place()
    return SqlAudit(database)
