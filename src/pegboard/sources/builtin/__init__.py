"""Builtin: the 17 tools that come with Pegboard, each a small file of its own, loaded when it is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pegboard.base.loading import Later

_NAMES = """
    datetime_now json_transform cache_store http_request graphql_query web_search web_scrape wikipedia read_file
    write_file sql_query send_webhook send_slack send_email text_summarize rag_query rag_ingest
""".split()

# `BUILTINS["read_file"].KIND` is its BuiltinKind; naming one loads that one alone.
BUILTINS: Final[Mapping[str, Any]] = {name: Later(f"pegboard.sources.builtin.{name}") for name in _NAMES}
