"""Config: one file to declare every tool, and who may use it."""

from pegboard.config.build import build, load_catalog, warnings
from pegboard.config.config import Config, context_for
from pegboard.config.editor_schema import json_schema
from pegboard.config.init_template import INIT_TEMPLATE, init_files
from pegboard.config.load import load

__all__ = [
    "INIT_TEMPLATE", "Config", "build", "context_for", "init_files", "json_schema", "load", "load_catalog", "warnings",
]  # fmt: skip
