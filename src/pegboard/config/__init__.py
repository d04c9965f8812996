"""Config: one file that declares every tool and who may use it."""

from pegboard.config.build import build, load_catalog
from pegboard.config.config import Config
from pegboard.config.config_warnings import warnings
from pegboard.config.editor_dialect import editor_schema
from pegboard.config.editor_schema import agent_schema, json_schema
from pegboard.config.init_template import INIT_TEMPLATE, init_files
from pegboard.config.load import load
from pegboard.config.request_context import context_for
from pegboard.config.yaml.insertion import block_text, item_count, mapping_text, with_groups, with_included, with_items

__all__ = [
    "INIT_TEMPLATE",
    "Config",
    "agent_schema",
    "block_text",
    "build",
    "context_for",
    "editor_schema",
    "init_files",
    "item_count",
    "json_schema",
    "load",
    "load_catalog",
    "mapping_text",
    "warnings",
    "with_groups",
    "with_included",
    "with_items",
]
