"""Limits that several modules of `server/http_api` share. Limits that an operator can set are in `Bounds`."""

AGENT_QUERY_CHARS = 200_000  # characters of the query to an agent over HTTP
AGENT_SESSION_CHARS = 200  # characters of a session id
API_PAGE_TOOLS = 100  # items on one page, unless the request sets a number
API_MOST_PAGE_TOOLS = 1_000  # items on one page, at most
API_FOUND_TOOLS = 50  # hits of one search, at most
API_QUERY_CHARS = 1_000  # characters of a search query
