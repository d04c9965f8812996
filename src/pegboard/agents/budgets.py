"""Budgets: limits on the use of one agent run, including its sub-agents."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING

from pydantic_ai.usage import RequestUsage

from pegboard.lazy import LazyModule
from pegboard.model.agent import AgentBudgets, AgentUsage, ModelSpec
from pegboard.model.error import CallError
from pegboard.model.request import CallBudget

if TYPE_CHECKING:
    import genai_prices
else:
    genai_prices = LazyModule("genai_prices")


class IterationsOverError(Exception):
    """The run has used up its requests to the model: it ends with the answer so far."""


class RunBudget(CallBudget):
    """The remaining budget of one run, linked to the surrounding runs; replaces the request's budget.

    A tool call is charged to all of them in one step, so that parallel branches share the remainder.
    """

    __slots__ = ("agent", "budgets", "input_tokens", "output_tokens", "requests", "usd", "within")

    def __init__(self, agent: str, budgets: AgentBudgets, within: CallBudget | None) -> None:
        super().__init__(budgets.tool_calls)
        self.agent, self.budgets, self.within = agent, budgets, within
        self.requests = self.input_tokens = self.output_tokens = 0
        self.usd = Decimal(0)

    def spend(self, *, default: int | None = None, look_only: bool = False) -> None:
        """Take one call from this budget and all surrounding ones, or check that one is left.

        Raises:
            CallError: `budget_exceeded`; nothing was taken.
        """
        if self.max_calls is not None and self.used >= self.max_calls:
            raise over(self.agent, "tool_calls", self.max_calls)
        if self.within is not None:
            self.within.spend(default=default, look_only=look_only)
        if not look_only:
            self.used += 1

    def chain(self) -> Iterator[RunBudget]:
        """Yield this budget and those of the surrounding runs, the nearest first."""
        budget: CallBudget | None = self
        while isinstance(budget, RunBudget):
            yield budget
            budget = budget.within

    def begin_request(self) -> None:
        """Take one model request, or refuse it if any budget is used up.

        Raises:
            CallError: `budget_exceeded`.
        """
        for budget in self.chain():
            limits = budget.budgets
            total = budget.input_tokens + budget.output_tokens
            for name, used, limit in (
                ("requests", budget.requests, limits.requests),
                ("input_tokens", budget.input_tokens, limits.input_tokens),
                ("output_tokens", budget.output_tokens, limits.output_tokens),
                ("total_tokens", total, limits.total_tokens),
                ("usd", budget.usd, limits.usd),
            ):
                if limit is not None and used >= limit:
                    raise over(budget.agent, name, limit)
        for budget in self.chain():
            budget.requests += 1

    def count(self, usage: RequestUsage, model: ModelSpec) -> None:
        """Add the usage of a request."""
        cost = self.price(model, usage) if self.wants_prices else Decimal(0)
        for budget in self.chain():
            budget.input_tokens += usage.input_tokens
            budget.output_tokens += usage.output_tokens
            budget.usd += cost

    @property
    def wants_prices(self) -> bool:
        """Whether this run or a surrounding one has a money budget."""
        return any(budget.budgets.usd is not None for budget in self.chain())

    def price(self, model: ModelSpec, usage: RequestUsage) -> Decimal:
        """Return the price of a model's usage in dollars.

        Raises:
            CallError: `config_invalid`; the price is unknown.
        """
        price = price_of(model, usage)
        if price is None:
            text = f"There is no price of {model.provider}:{model.name}, and the run has a budget of money."
            raise CallError("config_invalid", text, hint="Operators: take `usd` off, or name a model that has a price.")
        return price

    def usage(self) -> AgentUsage:
        """Return the usage so far."""
        return AgentUsage(
            requests=self.requests,
            tool_calls=self.used,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            usd=self.usd if self.wants_prices else None,
        )


def over(agent: str, name: str, limit: object) -> CallError:
    """Return the error for a budget that is used up."""
    text = f"The agent {agent!r} has used up its budget: {name} of {limit}. Finish with what is known."
    return CallError("budget_exceeded", text)


def price_of(model: ModelSpec, usage: RequestUsage | None = None) -> Decimal | None:
    """Return the price of a model's usage in dollars; `None` if it is unknown."""
    provider = None if model.provider == "openai_compatible" else model.provider
    try:
        known = genai_prices.calc_price(usage or RequestUsage(), model_ref=model.name, provider_id=provider)
    except LookupError:
        return None
    return known.total_price
