"""Plan record: a plan as JSON, for `--json`, the log of a reload, and pages."""

from __future__ import annotations

from pegboard.model.json_types import JSON
from pegboard.planning.comparison import Change, Plan

CHANGE_ORDER = ("lost", "breaking", "unclear", "weaker", "changed", "gained", "stronger", "compatible")
"""The kinds of changes, those that may break something first."""


def plan_record(plan: Plan, *, counted_by: str, old_folder: str = "") -> JSON:
    """Return a plan as JSON; places in `old_folder`, a copy that is gone when somebody reads this, lose their folder.

    `profiles` has for each profile its changes, how its tools are shown before and after, and the tokens of each
    exposure as `[before, after]`. Each change has `kind`, `tool`, `what`, `detail` and `example`; `all_profiles` has
    those without a profile. `summary` counts each kind once for all profiles that share it.
    """

    def told(text: str) -> str:
        return text.replace(f"{old_folder}/", "") if old_folder else text

    def row(change: Change) -> JSON:
        shown = {"kind": change.kind, "tool": change.tool, "what": change.what, "detail": change.detail}
        shown["example"] = change.example or None
        return {key: value and told(value) for key, value in shown.items()}

    return {
        "against": plan.against,
        "counted_by": counted_by,
        "profiles": [
            {
                "profile": one.profile,
                "changes": [
                    row(change) for change in sorted(one.changes, key=lambda each: CHANGE_ORDER.index(each.kind))
                ],
                "shown_as": list(one.shown_as),
                "tokens": {exposure: list(pair) for exposure, pair in one.tokens.items()},
            }
            for one in plan.profiles
        ],
        "all_profiles": [row(change) for change in plan.everywhere],
        "summary": {kind: plan.count(kind) for kind in CHANGE_ORDER},
        "not_compared": [told(text) for text in plan.not_compared],
    }


def plan_sentence(record: JSON) -> str:
    """Return the number of changes of each kind, as a sentence."""
    counts = [f"{count} {kind}" for kind, count in record["summary"].items() if count]
    return f"Compared with {record['against']}: {', '.join(counts) or 'nothing that callers see has changed'}."
