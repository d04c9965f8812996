"""Init template: the files that `pegboard init` writes."""

from __future__ import annotations

from typing import Final

INIT_TEMPLATE: Final = """\
# pegboard.yaml: every tool once, and who may use it.
#   pegboard check          is everything right?
#   pegboard list           what does a profile see?
#   pegboard call word_count text="to be or not to be"
#   pegboard serve          serve it over MCP
# `pegboard schema --editor --write` has your editor complete and check this file.

name: my-tools

# Modules next to this file. The tools that they register on pegboard.default_catalog are tools here.
python: [my_tools]

# Values for your code (ctx.settings) and for the predicates below.
# ${NAME} and ${NAME:-default} come from the environment, ${file:PATH} from a file; $${ is the plain text.
settings:
  shouting: true

# Yes/no questions on each request: {secret: NAME}, {context: field}, {setting: name},
# {python: "python:module:function"}, and {all: […]}, {any: […]}, {not: …} of them.
predicates:
  shouting_is_on: {setting: shouting}
  # sentry_configured: {secret: SENTRY_TOKEN}

groups:
  core: Safe for everybody
  extras: Only where asked for

# word_count is in my_tools.py, which declares everything about it.
# shout has its function there, and its words, limits and conditions here.
tools:
  - name: shout
    type: internal
    handler: "python:my_tools:shout"
    description: Write a text in capital letters
    parameters:
      text: {type: string, description: What to write, required: true}
      marks: {type: integer, description: Number of exclamation marks, default: 1, minimum: 0, maximum: 10}
    groups: [extras]
    available: shouting_is_on
    rate_limit: 10/60s
    timeout_seconds: 5

# One profile for each kind of caller. Deny wins over allow.
profiles:
  chat: {include: [core, extras]}
  messaging:
    include: [core]
    # deny: ["*_delete"]
"""

_MODULE: Final = '''\
"""Tools of this project. Edit them, add more, and run `pegboard check`."""

from pegboard import default_catalog


@default_catalog.tool(groups="core", read_only=True)
def word_count(text: str, unique: bool = False) -> int:
    """Count the words of a text.

    Args:
        text: Any text.
        unique: Count each distinct word once.
    """
    words = text.split()
    return len(set(words)) if unique else len(words)


def shout(text: str, marks: int = 1) -> str:
    """Write a text in capital letters; pegboard.yaml makes a tool of it."""
    return text.upper() + "!" * marks
'''


def init_files() -> dict[str, str]:
    """Return the text of each file of a new project, by its name: a config, and the module that it names."""
    return {"pegboard.yaml": INIT_TEMPLATE, "my_tools.py": _MODULE}
