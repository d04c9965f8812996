"""web_search: search the web with one of four providers."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import Field, model_validator

from pegboard.egress.responses import check_status
from pegboard.model.call_context import CallContext
from pegboard.model.json_types import JSON
from pegboard.model.tool import Annotations, Handler
from pegboard.sources.builtin.kind import BuiltinKind, SecretText, Services, rows_of, tool_spec
from pegboard.sources.builtin.outbound import HttpUrl, NetworkConfig, fitting, web
from pegboard.sources.builtin.search_providers import PROVIDERS, Search

SEARCH_SNIPPET_BYTES = 4_000  # bytes of a search hit's snippet

# A hit's link must be a URL.
_LINK = r"https?://[^\s\x00-\x1f]{1,4000}\Z"


class SearchConfig(NetworkConfig):
    """The search provider, and the limits of its requests."""

    provider: Literal["tavily", "brave", "searxng", "duckduckgo"] = Field(
        "duckduckgo", description="The search provider; tavily and brave need an api_key, searxng a base_url."
    )
    api_key: SecretText | None = Field(None, description="The provider's API key.")
    base_url: HttpUrl | None = Field(None, description="The provider's URL, if it is not the usual one.")

    @model_validator(mode="after")
    def _provider_has_what_it_needs(self) -> Self:
        if self.provider in ("tavily", "brave") and not self.api_key:
            raise ValueError(f"provider {self.provider!r} needs `api_key`")
        if self.provider == "searxng" and self.base_url is None:
            raise ValueError("provider 'searxng' needs `base_url`, the address of your instance")
        return self


SPEC = tool_spec(
    "web_search",
    "Search the web and return titles, URLs and snippets.",
    arguments={
        "query": {"type": "string", "minLength": 1, "maxLength": 400, "description": "What to search for."},
        "max_results": {
            "type": "integer",
            "minimum": 1,
            "maximum": 20,
            "default": 5,
            "description": "The maximum number of hits.",
        },
        "recency": {"type": "string", "enum": ["day", "week", "month", "year"], "description": "Not older than this."},
        "site": {
            "type": "string",
            "pattern": "^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$",
            "description": "Only pages of this host, such as docs.python.org.",
        },
    },
    required=("query",),
    result={
        "results": rows_of(
            {"title": {"type": "string"}, "url": {"type": "string"}, "snippet": {"type": "string"}},
            published={"type": "string"},
        ),
        "provider": {"type": "string"},
    },
    always=("results", "provider"),
    annotations=Annotations(read_only=True, destructive=False, idempotent=True, open_world=True),
    examples=({"query": "python asyncio taskgroup"}, {"query": "release notes", "site": "docs.python.org"}),
)


def make(config: SearchConfig, services: Services) -> Handler:
    """Return the handler, on the configured provider."""
    provider = PROVIDERS[config.provider]
    base = (config.base_url or provider.base_url).rstrip("/")
    key = config.api_key.reveal() if config.api_key else ""
    out = web(config, services, provider.headers(key), fixed_url=config.base_url)

    async def search(ctx: CallContext, args: JSON) -> JSON:
        wanted = Search(
            query=args["query"],
            max_results=args.get("max_results", 5),
            recency=args.get("recency"),
            site=args.get("site"),
        )
        request = provider.request(wanted)
        response = await out.request(
            request.method, f"{base}{request.path}", headers=request.headers, body=request.body
        )
        check_status(response, f"The search provider {config.provider!r}")
        hits = [hit for hit in await provider.read(response) if re.match(_LINK, hit["url"])]
        results = [hit | {"snippet": fitting(hit["snippet"], SEARCH_SNIPPET_BYTES)} for hit in hits]
        return {"results": results[: wanted.max_results], "provider": config.provider}

    return search


KIND = BuiltinKind(spec=SPEC, config=SearchConfig, make=make, needs_context=False)
