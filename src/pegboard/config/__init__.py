"""Config: one file to declare every tool, and who may use it."""

from pegboard.config.config import Config, context_for
from pegboard.config.load import load
from pegboard.config.schema import json_schema
from pegboard.config.template import INIT_TEMPLATE, init_files
from pegboard.config.wire import build, load_catalog, warnings

__all__ = [
    "INIT_TEMPLATE", "Config", "build", "context_for", "init_files", "json_schema", "load", "load_catalog", "warnings",
]  # fmt: skip
