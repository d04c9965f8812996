"""Rag: a tool with its own name that searches one collection of documents."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, Field, Strict, ValidationError

from pegboard.config.build_context import BuildContext
from pegboard.config.config import Declared
from pegboard.config.forms.validation import explain
from pegboard.config.forms.value_types import FilledText, Form
from pegboard.config.kinds.tool_form import ToolForm, check_aliases, check_examples, overlaid
from pegboard.config.yaml.environment import typed
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.json_types import JSON
from pegboard.model.record import replace
from pegboard.sources.builtin.kind import Services
from pegboard.sources.builtin.rag_query import KIND, QueryConfig

Share: TypeAlias = Annotated[float, Strict(), Field(ge=0, le=1), BeforeValidator(typed)]
Passages: TypeAlias = Annotated[int, Strict(), Field(ge=1, le=50), BeforeValidator(typed)]


class CollectionForm(Form):
    """The documents to search, and the minimum score of a match."""

    collection: FilledText = Field(description="The collection: the name or id of a document source.")
    top_k: Passages = Field(5, description="The number of passages to return, unless the call sets it.")
    score_threshold: Share = Field(0.0, description="The minimum score, from 0 to 1.")


class RagForm(ToolForm):
    """A tool that searches a collection of documents."""

    rag: CollectionForm = Field(description="The collection.")


def declare(tool: Declared[RagForm], build: BuildContext) -> None:
    """Add the tool to the catalog: `rag_query` on one collection, which its caller cannot change."""
    form, at = tool.value, tool.at
    services = Services(bounds=build.config.bounds, documents=build.documents)
    try:
        config = QueryConfig(collection=form.rag.collection, score_threshold=form.rag.score_threshold)
    except ValidationError as error:
        build.report.add(*explain(error, at / "rag", QueryConfig))
        return
    entry = KIND.entry(config, services)
    arguments: JSON = dict(entry.spec.input_schema["properties"])
    del arguments["collection"]
    arguments["top_k"] = {**arguments["top_k"], "default": form.rag.top_k}
    plain = replace(entry.spec, namespace="main", input_schema={**entry.spec.input_schema, "properties": arguments})
    spec = check_aliases(overlaid(plain, tool, build), tool, build)
    entry = replace(entry, spec=spec, fingerprint="", wire_name="")
    try:
        build.catalog.registry.add(entry)
        check_examples(entry, tool, build)
    except (DefinitionError, CallError) as error:
        build.refused(error, at)
