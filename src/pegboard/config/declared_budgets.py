"""Declared budgets: create the budgets of a config, and the store that counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegboard.config.build_context import BuildContext
from pegboard.config.config import Config
from pegboard.config.profiles import place_of
from pegboard.config.yaml.problems import Report
from pegboard.core.names import nearest
from pegboard.core.ports import BudgetStore
from pegboard.extras import needs_package
from pegboard.lazy import LazyModule
from pegboard.limits.sql_budgets import BUDGET_BUSY_S, SCHEMA, SqlBudgetStore
from pegboard.model.budget import Budget
from pegboard.model.error import DefinitionError
from pegboard.model.secret import Secret
from pegboard.storage.postgres_server import PostgresServer
from pegboard.storage.sqlite_file import SqliteFile
from pegboard.storage.store_uri import StoreUri

if TYPE_CHECKING:
    from pegboard.limits import redis_store
else:
    redis_store = LazyModule("pegboard.limits.redis_store")

REDIS_SCHEMES = ("redis", "rediss", "redis+unix", "valkey", "valkeys", "valkey+unix")
_CONNECTIONS = 4  # connections to PostgreSQL that stay open


def budget_store_of(config: Config, report: Report) -> BudgetStore | None:
    """Return the store of a config's budgets; `None` if it names none, or after reporting a problem."""
    declared = config.budgets
    if declared is None or declared.value.store is None:
        return None
    store, extra = declared.value.store, "redis"
    text = store.reveal() if isinstance(store, Secret) else store
    try:
        if text.partition(":")[0] in REDIS_SCHEMES:
            return redis_store.RedisBudgetStore(
                store, key_prefix=f"pegboard:{config.name}", silence_s=config.bounds.limit_store_s
            )
        extra = "postgres"
        uri = StoreUri.located(text, folder=config.path.absolute().parent, others=("redis://HOST",))
        database = (
            PostgresServer(uri.text, SCHEMA, busy_s=BUDGET_BUSY_S, keep=_CONNECTIONS)
            if uri.path is None
            else SqliteFile(uri.path, SCHEMA, busy_s=BUDGET_BUSY_S, is_wal=True)
        )
        return SqlBudgetStore(database, catalog=config.name)
    except ImportError as error:
        report.add((declared.at / "store").problem(needs_package(error.name, extra)))
    except DefinitionError as error:
        report.add((declared.at / "store").problem(str(error)))
    return None


def declare_budgets(build: BuildContext) -> None:
    """Declare every budget of the config; unknown profiles are problems."""
    declared = build.config.budgets
    if declared is None:
        return
    registry = build.catalog.registry
    known = {*registry.profiles, *build.config.refused.profiles}
    for name, form in declared.value.rules.items():
        at = declared.at / "rules" / name
        for index, profile in enumerate(form.profiles):
            if profile not in known:
                text = f"unknown profile {profile!r}.{nearest(profile, known, label='Profiles')}"
                build.report.add(place_of(at / "profiles", index).problem(text))
        budget = Budget(name=name, origin=at.origin, **form.model_dump())
        registry.change(budgets={**registry.declarations.budgets, name: budget})
