"""Real schemas: each goes out to every provider without a fault, and what a model answers comes back."""

import json
import os
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from pegboard import Catalog, DefinitionError, ToolContext, ToolSpec
from pegboard.core.names import legal
from pegboard.core.validated_entry import enforced_schema
from pegboard.providers.compile import problems
from tests.providers.checkers import CHECKERS
from tests.providers.instances import Writer
from tests.providers.losses import unlisted

pytestmark = pytest.mark.shared
SCHEMAS = Path(os.environ.get("PEGBOARD_SHARED", "../shared")) / "bench" / "schemas" / "schemas.jsonl"
LINES = [json.loads(line) for line in SCHEMAS.read_text().splitlines()] if SCHEMAS.exists() else []
PARAMETERS = {
    "anthropic": "input_schema", "anthropic_strict": "input_schema", "gemini": "parametersJsonSchema",
    "openai_responses": "parameters",
}  # fmt: skip


def catalog() -> Catalog:
    made = Catalog()
    for number, line in enumerate(LINES):
        spec = ToolSpec(name=legal(f"{number}_{line['name']}"), input_schema=line["schema"])
        try:
            made.register(spec, handler=lambda ctx, args: None)
        except DefinitionError:
            assert not line["valid_2020"]
    return made


def schema_in(target: str, tool: Any) -> Any:
    return tool[PARAMETERS[target]] if target in PARAMETERS else tool["function"]["parameters"]


@pytest.mark.parametrize("target", CHECKERS)
def test_no_exported_schema_breaks_a_documented_rule(target: str) -> None:
    tools = catalog().view(ToolContext()).export(target)
    faults = [(tool, found) for tool in tools if (found := CHECKERS[target](tool))]
    assert (faults, len(tools)) == ([], sum(line["valid_2020"] for line in LINES))


@pytest.mark.parametrize("target", CHECKERS)
def test_what_fits_the_exported_schema_fits_the_tools_own_or_the_loss_is_listed(target: str) -> None:
    view = catalog().view(ToolContext())
    lost: dict[str, list[Any]] = {}
    for loss in view.export_report(target):
        lost.setdefault(loss["tool"], []).append(loss)
    wrong, tried = [], 0
    for entry, tool in zip(view.tools(), view.export(target), strict=True):
        name = tool["function"]["name"] if "function" in tool else tool["name"]
        sent, own = schema_in(target, tool), enforced_schema(entry)
        for seed in range(20):
            args = Writer(sent, seed).value(sent)
            if not jsonschema_rs.is_valid(sent, args, validate_formats=True):
                continue
            tried += 1
            back = view.decode(target, name, args)
            faults = unlisted(own, back, lost.get(entry.wire_name, []))
            if faults:
                wrong.append((entry.wire_name, args, faults))
    assert (wrong[:3], tried > 11_000) == ([], True)


def test_what_is_said_to_be_refused_agrees_with_the_labels_of_the_set() -> None:
    labels = {"openai_strict": "openai_strict", "gemini": "gemini_json_schema"}
    wrong = [
        (target, line["name"], found[:2], line["violations"][label])
        for target, label in labels.items()
        for line in LINES
        if bool(found := problems(target, "x", line["schema"])) != bool(line["violations"][label])
    ]
    assert wrong == []
