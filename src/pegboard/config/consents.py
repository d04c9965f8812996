"""Consents: create the consent store of a config."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegboard.config.config import Config
from pegboard.config.yaml.problems import Report
from pegboard.consent.postgres_store import PostgresConsents
from pegboard.consent.sqlite_store import SqliteConsents
from pegboard.core.ports import UsedAnswers
from pegboard.extras import needs_package
from pegboard.lazy import LazyModule
from pegboard.model.error import DefinitionError
from pegboard.model.secret import Secret
from pegboard.storage.store_uri import StoreUri

if TYPE_CHECKING:
    from pegboard.consent import redis_used_answers as redis_answers
else:
    redis_answers = LazyModule("pegboard.consent.redis_used_answers")


_REDIS = ("redis", "rediss", "redis+unix", "valkey", "valkeys", "valkey+unix")


def has_inbox(config: Config) -> bool:
    """Tell whether the consent store of a config takes questions, for people to decide later."""
    declared = config.consent_store
    if declared is None:
        return False
    text = declared.value.reveal() if isinstance(declared.value, Secret) else declared.value
    return text.partition(":")[0] not in _REDIS


def consent_store_of(config: Config, report: Report) -> UsedAnswers | None:
    """Return the consent store of a config; `None` if there is none, or after reporting a problem."""
    declared = config.consent_store
    if declared is None:
        return None
    text = declared.value.reveal() if isinstance(declared.value, Secret) else declared.value
    page, extra = config.consent_page, "redis"
    try:
        if not has_inbox(config):
            return redis_answers.RedisAnswerStore(declared.value, key_prefix=f"pegboard:{config.name}")
        extra = "postgres"
        uri = StoreUri.located(text, folder=config.path.absolute().parent, others=("redis://HOST",))
        return SqliteConsents(uri.path, page=page) if uri.path else PostgresConsents(uri.text, page=page)
    except ImportError as error:
        report.add(declared.at.problem(needs_package(error.name, extra)))
    except DefinitionError as error:
        report.add(declared.at.problem(str(error)))
    return None
