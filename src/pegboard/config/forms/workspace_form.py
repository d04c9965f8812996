"""Workspace form: where documents are stored, and what can be done with them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from pegboard.config.forms.embedder_form import EmbedderForm
from pegboard.config.forms.value_types import (
    FLAG,
    MAPPING,
    TEXT,
    ConcealedText,
    FilledText,
    Form,
    Maybe,
    PositiveNumber,
)


class WebFetchForm(Form):
    """Which pages of the web may be fetched."""

    allow_hosts: tuple[FilledText, ...] = Field(
        (), description="Only these: `example.com`, `*.example.com`, `10.0.0.0/8`; without any, every public one."
    )
    allow_private: bool = Field(False, description="Whether private and loopback addresses may be reached.")
    timeout_seconds: PositiveNumber = Field(30.0, description="For one page, redirects too.")


class WorkspaceForm(Form):
    """The documents of all spaces, and the tools with which agents browse, search and read them."""

    store: ConcealedText = Field(
        "sqlite:./documents.db",
        description="Where documents are stored: sqlite:FILE, beside this file, or postgresql://HOST/DATABASE, which "
        "several machines share and which has the extension `vector`.",
    )
    space: Maybe[FilledText] = Field(
        None,
        description="The space of callers whom nobody asks who they are: those of a server without `identity:`, and of "
        "commands without `--as`. Without it they see no documents.",
    )
    embedder: Annotated[
        Annotated[EmbedderForm, Tag(MAPPING)] | Annotated[Literal["none", "hashing"], Tag(TEXT)],
        Discriminator(lambda value: MAPPING if isinstance(value, dict) else TEXT),
    ] = Field(
        "none",
        description="What makes vectors of passages, beside words: `none`; `hashing`, which needs no model and finds "
        "words with slips; or a mapping with `type`, as under `discovery:`.",
    )
    model: Maybe[FilledText] = Field(
        None,
        description="One of `models:`, for the tools that need one (`analyze_document`, questions to "
        "`query_documents`); the `default` one without it.",
    )
    web_fetch: Maybe[
        Annotated[
            Annotated[WebFetchForm, Tag(MAPPING)] | Annotated[bool, Tag(FLAG)],
            Discriminator(lambda value: MAPPING if isinstance(value, dict) else FLAG),
        ]
    ] = Field(
        None,
        description="Whether agents may fetch pages of the web (`fetch_web_page`); a mapping says which hosts. Without "
        "it they may where the built-in `web_search` is among the tools, which is in the group `web` then too.",
    )
