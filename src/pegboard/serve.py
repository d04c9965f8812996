"""serve: the servers of a catalog under the name that they had first; `pegboard` exports them too."""

from pegboard.server.app import http_app, run_http
from pegboard.server.stdio import run_stdio

__all__ = ["http_app", "run_http", "run_stdio"]
