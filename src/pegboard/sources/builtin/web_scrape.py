"""web_scrape: fetch a page and return its main text."""

from __future__ import annotations

import orjson
from pydantic import Field

from pegboard.egress.responses import Response, is_json, media_type, text_of
from pegboard.egress.sandbox import run_sandboxed
from pegboard.model.bounds import MIB
from pegboard.model.call_context import CallContext
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, is_object
from pegboard.model.tool import Annotations, Handler
from pegboard.sources.builtin.kind import BuiltinKind, Services, tool_spec
from pegboard.sources.builtin.outbound import NetworkConfig, Web, fitting, web

SCRAPE_EXTRACT_S = 15.0  # seconds to extract a page's text after fetching it; most of it is importing the extractor
SCRAPE_CHARS = 400_000  # characters of a page's text
SCRAPE_OUTPUT_BYTES = 4 * MIB  # bytes of the extractor's output

_EXTRACT = "pegboard.sources.builtin.page_text:extract"
_MARKUP = frozenset({"text/html", "application/xhtml+xml", "application/xml", "text/xml", ""})


class ScrapeConfig(NetworkConfig):
    """The pages that may be fetched, and their limits."""

    max_memory_bytes: int = Field(
        1024 * MIB, ge=256 * MIB, description="The memory limit for parsing one page, in bytes."
    )

    def deadline_s(self) -> float:
        """Return the time for fetching and extracting."""
        return self.timeout_seconds + SCRAPE_EXTRACT_S


SPEC = tool_spec(
    "web_scrape",
    "Fetch a web page and return its title and main text, without menus and adverts.",
    arguments={
        "url": {"type": "string", "minLength": 1, "maxLength": 8192, "description": "An http or https URL."},
        "max_length": {
            "type": "integer",
            "minimum": 1,
            "maximum": 200_000,
            "default": 10_000,
            "description": "In characters.",
        },
        "format": {
            "type": "string",
            "enum": ["text", "markdown"],
            "default": "text",
            "description": "How the content is written.",
        },
    },
    required=("url",),
    result={
        "title": {"type": "string"},
        "content": {"type": "string"},
        "url": {"type": "string", "description": "Where the page came from, after redirects."},
        "status_code": {"type": "integer"},
        "truncated": {"type": "boolean"},
    },
    always=("title", "content", "url", "status_code", "truncated"),
    annotations=Annotations(read_only=True, destructive=False, idempotent=True, open_world=True),
    examples=({"url": "https://example.com/article", "format": "markdown"},),
)


def make(config: ScrapeConfig, services: Services) -> Handler:
    """Return the handler."""
    out = web(config, services)

    async def scrape(ctx: CallContext, args: JSON) -> JSON:
        response, title, content = await fetched(out, args["url"], args.get("format", "text"), config)
        max_length: int = args.get("max_length", 10_000)
        shown = fitting(content[:max_length], services.bounds.result_bytes // 2)
        return {
            "title": title,
            "content": shown,
            "url": response.url,
            "status_code": response.status_code,
            "truncated": response.truncated or len(shown) < len(content),
        }

    return scrape


async def fetched(out: Web, url: str, form: str, config: ScrapeConfig) -> tuple[Response, str, str]:
    """Fetch a page, checking each redirect; return the response, the title and the main text.

    Raises:
        CallError: the page must not or cannot be fetched, or is not a page.
    """
    accept = {"accept": "text/html,application/xhtml+xml,text/plain;q=0.9,*/*;q=0.5"}
    response = await out.request("GET", url, headers=accept, on_overflow="truncate")
    title, content = await _read(response, form, config)
    return response, title, content


async def _read(response: Response, form: str, config: ScrapeConfig) -> tuple[str, str]:
    """Return title and text. A page is parsed in a child, because it is foreign and parsers are complex."""
    kind = media_type(response)
    if (kind.startswith("text/") and kind not in _MARKUP) or is_json(kind):
        return "", text_of(response)
    if kind not in _MARKUP:
        raise CallError("invalid_arguments", f"There is no page at this URL but {kind!r}. Name a web page.")
    if not response.body.strip():
        return "", ""
    try:
        page = await run_sandboxed(
            _EXTRACT,
            {"format": form, "url": response.url, "max_chars": SCRAPE_CHARS},
            text_of(response).encode(),
            timeout_s=SCRAPE_EXTRACT_S,
            memory_bytes=config.max_memory_bytes,
            output_bytes=SCRAPE_OUTPUT_BYTES,
        )
    except CallError as error:
        raise CallError(
            error.error.kind, f"The text of the page could not be extracted: {error.error.message}."
        ) from None
    if not is_object(page):
        raise CallError("tool_error", f"The page could not be read: {orjson.dumps(page)[:80]!r}.")
    return str(page["title"])[:500], str(page["content"])


KIND = BuiltinKind(
    spec=SPEC, config=ScrapeConfig, make=make, needs_context=False, packages=lambda config: {"trafilatura": "tools"}
)
