"""Budget form: the keys of `budgets:`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias, get_args

from pydantic import BeforeValidator, Discriminator, Field, Tag, WithJsonSchema, model_validator

from pegboard.config.forms.value_types import (
    NUMBER,
    TEXT,
    ConcealedText,
    Count,
    FilledText,
    Form,
    Maybe,
    Names,
    PositiveNumber,
    ProfileName,
    definition_error,
)
from pegboard.model.budget import CALLS, BudgetEach, BudgetPeriod
from pegboard.model.rate_limit import WhenStoreIsDown

Period: TypeAlias = Annotated[
    Annotated[PositiveNumber, Field(ge=1), Tag(NUMBER)] | Annotated[BudgetPeriod, Tag(TEXT)],
    Discriminator(lambda value: NUMBER if isinstance(value, int | float) else TEXT),
]


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


_EACH = {"enum": [*get_args(BudgetEach)]}
Each: TypeAlias = Annotated[
    tuple[BudgetEach, ...],
    BeforeValidator(_as_list),
    WithJsonSchema({"anyOf": [_EACH, {"type": "array", "items": _EACH}]}),
]


class BudgetForm(Form):
    """A maximum number of calls, or a maximum cost, for each period."""

    per: Period = Field(
        description="The period: `hour`, `day`, `week` (from Monday) or `month`, in UTC, or a number of seconds."
    )
    calls: Maybe[Count] = Field(None, description="The number of calls per period; 0 refuses every call.")
    cost: Maybe[Annotated[PositiveNumber, Field(le=1e9)]] = Field(
        None, description="The maximum cost per period, in `unit`. A call may exceed it; the next call is then refused."
    )
    unit: FilledText = Field(
        "usd",
        description="The unit of `cost`. Agents report `usd` and `tokens`; your own tools may report any unit.",
    )
    tools: Names = Field((), description="Globs over tool names, such as `search__*`. Default: all tools.")
    profiles: Names = Field((), description="Only calls in these profiles. Default: all calls.")
    users: Names = Field((), description="Globs over user ids: only calls of these users. Default: all users.")
    each: Each = Field(
        (),
        description="Count separately for each of these: user, space, agent, key, profile, tool. Default: one count "
        "for all.",
    )
    when_store_is_down: Maybe[WhenStoreIsDown] = Field(
        None,
        description="What happens while the store does not respond: `closed` refuses calls, `local` counts in this "
        "process, `open` does not count. Default: `local` for read-only tools, `closed` for others.",
    )

    @model_validator(mode="after")
    def _limits_something(self) -> BudgetForm:
        if self.calls is None and self.cost is None:
            raise definition_error("it limits nothing; write `calls`, `cost` or both")
        if self.unit == CALLS:
            raise definition_error(
                "`unit` belongs to `cost`, such as `usd` or `tokens`; to limit the number of calls, use `calls`"
            )
        if "unit" in self.model_fields_set and self.cost is None:
            raise definition_error("`unit` belongs to `cost`, which is missing; write `cost`, or remove `unit`")
        return self


class BudgetsForm(Form):
    """Budgets of calls and cost, and the store that counts them."""

    store: Maybe[ConcealedText] = Field(
        None,
        description="Where calls and costs are counted: sqlite:FILE for the processes of one machine, "
        "postgresql://HOST/NAME or redis://HOST:PORT for several. Default: each process counts only its own"
        " calls, in memory.",
    )
    rules: Mapping[ProfileName, BudgetForm] = Field(description="The budgets by name, such as `research`.")
