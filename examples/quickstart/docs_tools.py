"""Docs tools: tools on a folder of pages, one in each form that Pegboard has."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from guards import calls_by_tool
from library import library

from pegboard import CallContext, Field, Tool, ToolContext, ToolSpec, default_catalog

Page = Annotated[str, Field(description="Path of the page, as list_pages gives it")]

# ---- functions: the schema comes from the signature, the words from the docstring


@default_catalog.tool(groups="core", read_only=True)
def list_pages() -> list[str]:
    """List the paths of all pages."""
    return library.names()


@default_catalog.tool(groups="core", read_only=True, aliases={"path": "page"})
def read_page(
    page: Page, max_lines: Annotated[int, Field(minimum=1, maximum=2000, description="Read no more.")] = 200
) -> str:
    """Read one page as Markdown."""
    return "\n".join(library.read(page).splitlines()[:max_lines])


@default_catalog.tool(groups="core", read_only=True)
async def search_docs(ctx: CallContext, query: Annotated[str, Field(min_length=1)]) -> list[dict[str, Any]]:
    """Find the lines that have most words of a query.

    Args:
        query: Some words.
    """
    words = query.casefold().split()
    names = library.names()
    hits: list[tuple[int, str, int, str]] = []
    for at, page in enumerate(names):
        await ctx.progress(at / len(names), page)
        for number, line in enumerate(library.read(page).splitlines(), 1):
            score = sum(word in line.casefold() for word in words)
            if score:
                hits.append((-score, page, number, line.strip()))
    best = sorted(hits)[: ctx.settings["search_limit"]]
    return [{"page": page, "line": number, "text": line} for _, page, number, line in best]


# ---- functions without a decorator: pegboard.yaml makes tools of them


def count_words(page: str, unique: bool = False) -> int:
    """Return how many words a page has."""
    words = re.findall(r"\w+", library.read(page).casefold())
    return len(set(words)) if unique else len(words)


def outline(page: str, depth: int = 3) -> list[str]:
    """Return the headings of a page, indented by their level."""
    found = re.findall(rf"^(#{{1,{depth}}}) (.+)$", without_code(library.read(page)), re.MULTILINE)
    return ["  " * (len(marks) - 1) + title for marks, title in found]


def without_code(text: str) -> str:
    """Return a page without its code blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


# ---- a definition that somebody else wrote: the handler is given apart

PAGE_LINKS = {
    "type": "function",
    "function": {
        "name": "page_links",
        "description": "List where the links of one page lead",
        "parameters": {
            "type": "object",
            "properties": {"page": {"type": "string", "description": "Path of the page, as list_pages gives it"}},
            "required": ["page"],
        },
    },
}


async def page_links(_ctx: CallContext, args: dict[str, Any]) -> list[str]:
    """Return the targets of a page's links."""
    return re.findall(r"\]\(([^)]+)\)", without_code(library.read(args["page"])))


default_catalog.register(ToolSpec.from_openai(PAGE_LINKS, groups=("core",)), page_links)

# ---- a class: fields are parameters, methods are hooks


@dataclass
class Replaced:
    """What replace_text answers."""

    page: str
    replaced: int
    size_bytes: int


class ReplaceText(Tool, groups="editing", destructive=True, consent="destructive", output=Replaced):
    """Replace a text in the scratch copy of one page."""

    page: str = Field(description="Path of the page, as list_pages gives it", aliases=("path", "file"))
    old: str = Field(description="Text to replace, wherever it stands in the page")
    new: str = Field(description="Text to put there", allow_blank=True)

    def before(self) -> None:
        if self.old == self.new:
            self.report_error("'old' and 'new' are the same text: nothing would change.", kind="invalid_arguments")

    def perform(self) -> Replaced:
        text = library.read(self.page)
        size_bytes = library.write(self.page, text.replace(self.old, self.new))
        return Replaced(page=self.page, replaced=text.count(self.old), size_bytes=size_bytes)

    def after(self) -> None:
        self.render(text="The original is untouched. Call show_changes to see the difference.")


# ---- a predicate: these two tools are there only while there is something to show


@default_catalog.predicate
def has_changes(_ctx: ToolContext) -> bool:
    """Tell whether any page was changed."""
    return bool(library.changed)


@default_catalog.tool(groups="editing", available="has_changes", read_only=True)
def show_changes() -> str:
    """Show what differs between the scratch copy and the pages."""
    lines: list[str] = []
    for page in sorted(library.changed):
        old, new = library.read(page, original=True).splitlines(), library.read(page).splitlines()
        lines.extend(difflib.unified_diff(old, new, fromfile=page, tofile=f"scratch/{page}", lineterm="", n=0))
    return "\n".join(lines)


@default_catalog.tool(groups="publishing", available="has_changes", destructive=True, consent="always")
def discard_changes() -> str:
    """Forget every change."""
    count = len(library.changed)
    library.changed.clear()
    return f"{count} changed page{'s' if count != 1 else ''} forgotten"


# ---- a builder: the tool exists only for callers whose host supplies the factory


@default_catalog.builder("publish", groups="publishing", factory="publisher", description="Publish the changed pages")
def build_publish(ctx: ToolContext) -> Callable[..., Any]:
    """Make the tool for one caller, with the publisher that their host lends."""
    send: Callable[[str, str], None] = ctx.factory("publisher")(ctx)

    def publish() -> str:
        """Publish the changed pages."""
        for page in sorted(library.changed):
            send(page, library.read(page))
        return f"published: {', '.join(sorted(library.changed)) or 'nothing, as nothing was changed'}"

    return publish


# ---- internal only: host code opens it by name; no caller ever sees it


@default_catalog.tool(groups="core", internal_only=True, read_only=True)
def call_tally() -> dict[str, int]:
    """Count the calls so far, by tool and outcome."""
    return dict(sorted(calls_by_tool.items()))


# ---- a mirror: a name for an SDK's allow-list; the SDK runs that tool itself

default_catalog.mirror("WebFetch", groups="editing")
