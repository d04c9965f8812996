"""Limits that several modules of `server/http_api` share. Those that an operator may change are in `Bounds`."""

AGENT_QUERY_CHARS = 200_000  # of what an agent is asked over HTTP
AGENT_SESSION_CHARS = 200  # of the name of a conversation
API_PAGE_TOOLS = 100  # of one page, unless the request says otherwise
API_MOST_PAGE_TOOLS = 1_000  # and at most
API_FOUND_TOOLS = 50  # of one search, at most
API_QUERY_CHARS = 1_000  # of one search
