"""Decisions as text: one line that says whether a tool is visible, why not, and what to change."""

from pegboard import Catalog, Policy, ToolContext
from pegboard.model.decision import Blocked, Decision, Fix


def _shop() -> Catalog:
    catalog = Catalog()
    catalog.group("read", "Read.")

    @catalog.tool(groups=["write"])
    def refund(order: str) -> str:
        """Refund an order."""
        return order

    return catalog


def test_a_printed_decision_says_why_a_tool_is_hidden_and_what_to_change() -> None:
    view = _shop().view(ToolContext(), include=["read"])
    wanted = "hidden (group): not in include=['read']; its groups are ['write']. Fix: include 'write'."
    assert str(view.why("refund")) == wanted


def test_a_printed_decision_names_the_next_obstacle() -> None:
    ctx = ToolContext(policy=Policy(deny=("refund",)))
    text = str(_shop().view(ctx, include=["read"]).why("refund"))
    assert "Fix: include 'write'. After that: hidden (policy): denied by ['refund']." in text


def test_a_printed_decision_of_a_visible_tool_says_whether_a_call_would_be_refused() -> None:
    assert str(_shop().view(ToolContext()).why("refund")) == "visible"
    blocked = Decision("visible", blocked=Blocked("rate_limited", "10 calls a minute are used up."))
    assert str(blocked) == "visible, but refused (rate_limited): 10 calls a minute are used up."


def test_a_printed_decision_without_reasons_still_reads_as_sentences() -> None:
    assert str(Decision("source")) == "hidden (source)."
    assert str(Decision("source", "it is away", Fix("source", "up", "start it"), next="group")) == (
        "hidden (source): it is away. Fix: start it. After that: hidden (group)."
    )
