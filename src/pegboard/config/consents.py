"""Consents: the store of people's answers that a config names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegboard.config.config import Config
from pegboard.config.yaml.problems import Report
from pegboard.consent.sqlite_store import SqliteConsents
from pegboard.core.ports import UsedAnswers
from pegboard.lazy import LazyModule
from pegboard.model.error import DefinitionError
from pegboard.model.secret import Secret

if TYPE_CHECKING:
    from pegboard.consent import postgres_store
    from pegboard.consent import redis_used_answers as redis_answers
else:
    postgres_store = LazyModule("pegboard.consent.postgres_store")
    redis_answers = LazyModule("pegboard.consent.redis_used_answers")


def consent_store_of(config: Config, report: Report) -> UsedAnswers | None:
    """Return the store that a config declares; `None` where it declares none, or one that cannot be used."""
    declared = config.consent_store
    if declared is None:
        return None
    uri = declared.value.reveal() if isinstance(declared.value, Secret) else declared.value
    scheme, _, rest = uri.partition(":")
    page, extra = config.consent_page, "redis"
    try:
        if scheme == "sqlite" and rest:
            return SqliteConsents(config.path.absolute().parent / rest.removeprefix("//"), page=page)
        if scheme in ("postgresql", "postgres"):
            extra = "postgres"
            return postgres_store.PostgresConsents(declared.value, page=page)
        if scheme in ("redis", "rediss", "redis+unix", "valkey", "valkeys", "valkey+unix"):
            return redis_answers.RedisAnswerStore(declared.value, key_prefix=f"pegboard:{config.name}")
        message = (
            f"a store of the kind {scheme!r} is unknown; write sqlite:FILE, postgresql://HOST/NAME or redis://HOST"
        )
        report.add(declared.at.problem(message))
    except ImportError as error:
        message = f"needs the package {error.name!r}, which is not installed; install `pegboard[{extra}]`"
        report.add(declared.at.problem(message))
    except DefinitionError as error:
        report.add(declared.at.problem(str(error)))
    return None
