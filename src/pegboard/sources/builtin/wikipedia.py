"""wikipedia: return the summary of an article."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, urlencode

from pydantic import Field

from pegboard.egress.responses import check_status, json_of
from pegboard.model.call_context import CallContext
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, is_list, is_object
from pegboard.model.tool import Annotations, Handler
from pegboard.sources.builtin.kind import BuiltinKind, Services, tool_spec
from pegboard.sources.builtin.outbound import HttpUrl, NetworkConfig, Web, fitting, web

WIKIPEDIA_TITLE_CHARS = 500  # characters of an article's title
WIKIPEDIA_EXTRACT_BYTES = 200_000  # bytes of an article's text
WIKIPEDIA_GUESSES = 5  # similar titles suggested if an article is not found

_WHO = "Wikipedia"
# A link in a result must be a URL.
_LINK = r"https?://[^\s\x00-\x1f]{1,4000}\Z"


class WikipediaConfig(NetworkConfig):
    """The Wikipedia to use, and the limits of its requests."""

    base_url: HttpUrl = Field(
        "https://{language}.wikipedia.org",
        description="The URL of Wikipedia; `{language}` is replaced by the language code.",
    )


SPEC = tool_spec(
    "wikipedia",
    "Look a topic up in Wikipedia and return the summary of its article.",
    arguments={
        "topic": {"type": "string", "minLength": 1, "maxLength": 255, "description": "The title of the article."},
        "language": {
            "type": "string",
            "default": "en",
            "pattern": "^[a-z]{2,3}(-[a-z0-9]{2,10}){0,2}$",
            "description": "The code of the Wikipedia, such as en, de or zh-yue.",
        },
    },
    required=("topic",),
    result={"title": {"type": "string"}, "extract": {"type": "string"}, "url": {"type": "string"}},
    always=("title", "extract", "url"),
    annotations=Annotations(read_only=True, destructive=False, idempotent=True, open_world=True),
    examples=({"topic": "Alan Turing"}, {"topic": "Köln", "language": "de"}),
)


def make(config: WikipediaConfig, services: Services) -> Handler:
    """Return the handler."""
    out = web(config, services, fixed_url=config.base_url if "base_url" in config.model_fields_set else None)

    async def look_up(ctx: CallContext, args: JSON) -> JSON:
        topic = args["topic"].strip()
        if topic in ("", ".", ".."):
            raise CallError("invalid_arguments", f"{args['topic']!r} is not a topic. Name an article.")
        base = config.base_url.rstrip("/").replace("{language}", args.get("language", "en"))
        # One path segment, whatever characters it has.
        title = quote(topic.replace(" ", "_"), safe="")
        response = await out.request("GET", f"{base}/api/rest_v1/page/summary/{title}?redirect=true")
        if response.status_code == 404:
            raise CallError("invalid_arguments", await _not_found(out, base, topic))
        check_status(response, _WHO)
        return _summary(json_of(response, _WHO), f"{base}/wiki/{title}")

    return look_up


def _summary(page: Any, url: str) -> JSON:
    if not is_object(page) or not isinstance(page.get("title"), str):
        raise CallError("protocol_error", f"{_WHO} answered in an unknown format. Try again later.")
    urls = page.get("content_urls")
    desktop = urls.get("desktop") if is_object(urls) else None
    page_url = desktop.get("page") if is_object(desktop) else None
    extract = page.get("extract")
    return {
        "title": page["title"][:WIKIPEDIA_TITLE_CHARS],
        "extract": fitting(extract, WIKIPEDIA_EXTRACT_BYTES) if isinstance(extract, str) else "",
        "url": page_url if isinstance(page_url, str) and re.match(_LINK, page_url) else url,
    }


async def _not_found(out: Web, base: str, topic: str) -> str:
    query = urlencode(
        {"action": "opensearch", "search": topic, "limit": WIKIPEDIA_GUESSES, "namespace": 0, "format": "json"}
    )
    names: list[str] = []
    try:
        response = await out.request("GET", f"{base}/w/api.php?{query}")
        answer = json_of(response, _WHO) if response.status_code < 400 else None
    except CallError:
        # The answer stays "not found", just without suggestions.
        answer = None
    if is_list(answer) and len(answer) > 1 and is_list(answer[1]):
        names = [str(name) for name in answer[1][:WIKIPEDIA_GUESSES]]
    near = f"Did you mean {', '.join(repr(name) for name in names)}?" if names else "Try other words."
    return f"There is no article {topic!r}. {near}"


KIND = BuiltinKind(spec=SPEC, config=WikipediaConfig, make=make, needs_context=False)
