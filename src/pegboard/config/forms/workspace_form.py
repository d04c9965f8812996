"""Workspace form: where documents are stored, and what can be done with them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pegboard.config.forms.value_types import ConcealedText, Form, Maybe


class WorkspaceForm(Form):
    """The documents of all spaces, and the tools with which agents browse, search and read them."""

    store: ConcealedText = Field(
        "sqlite:./documents.db", description="Where documents are stored: sqlite:FILE, beside this file."
    )
    space: Maybe[str] = Field(
        None,
        description="The space of callers whom nobody asks who they are: those of a server without `identity:`, and of "
        "commands without `--as`. Without it they see no documents.",
    )
    embedder: Literal["none"] = Field(
        "none", description="What makes vectors of passages; `none` searches by words alone."
    )
