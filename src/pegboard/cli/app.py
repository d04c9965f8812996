"""app: the commands and the options they share; a command's own module is loaded when it is used."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Group, Parameter

from pegboard.cli.command_error import CommandError
from pegboard.cli.completers import profile_names
from pegboard.cli.options import Identity, Options
from pegboard.cli.terminal import Terminal
from pegboard.core.names import nearest_one
from pegboard.egress.own_memory import close_own_memory

# In the order in which a new user needs them. Each summary is the first line of its function's docstring.
# cyclopts imports `commands/NAME.py` when the command is used; a test holds table and folder together.
COMMANDS = {
    "init": "Write a first configuration, with comments.",
    "check": "Check the configuration and print all its problems.",
    "add": "Declare the tools of an MCP server or an HTTP API.",
    "import": "Take over servers, tools and agents from elsewhere.",
    "list": "List the tools that a caller may use.",
    "show": "Show the whole declaration of one tool.",
    "why": "Tell why a caller may use a tool or not, and what would change that.",
    "search": "Find tools by what is needed.",
    "call": "Call one tool, through every guard.",
    "agents": "List the agents, with their tools and whom each may run.",
    "run": "Run an agent, and show its answer and its tool calls as they come.",
    "lint": "Find what makes tools hard to find, to tell apart, or to use.",
    "refs": "Find names of tools in prompts, code and configs that do not exist.",
    "export": "Print the tools in the form of a model provider.",
    "tokens": "Tell what the list of tools costs in a prompt, for each profile and exposure.",
    "serve": "Serve the tools over MCP.",
    "install": "Enter the tools of --profile in the configuration of an MCP client.",
    "demo": "Show on a running server what Pegboard does.",
    "lock": "Pin what MCP servers say of their tools, show changes, accept them.",
    "doctor": "Show the state of all sources, stores, servers, models and keys.",
    "consent": "Decide on calls that need a person's yes.",
    "tasks": "List, show, end and resume the calls that outlive their request.",
    "keys": "Make, list, rotate and revoke the API keys of callers over HTTP.",
    "store": "Back up, restore and migrate the stores of keys, consents, tasks, documents and conversations.",
    "ingest": "Take documents into a space: a folder, a file, or a page or feed of the web.",
    "workspace": "Show and remove what is stored of documents, and grant spaces.",
    "schema": "Print the JSON Schema of the configuration file, of the file of an agent, or for an editor.",
    "completion": "Print the script by which a shell completes words.",
}
# Shown at the end of each command's help; a test reads each as the command line would.
EXAMPLES = {
    "init": "pegboard init",
    "check": "pegboard check",
    "add": "pegboard add uvx mcp-server-time",
    "import": "pegboard import mcp.json",
    "list": "pegboard list --profile chat --all",
    "show": "pegboard show word_count",
    "why": "pegboard why word_count --profile chat",
    "search": 'pegboard search "create an issue" --limit 3',
    "call": "pegboard call word_count text='one two'",
    "agents": "pegboard agents",
    "run": 'pegboard run sales "How large are they?"',
    "lint": "pegboard lint --fail-on error",
    "refs": "pegboard refs prompts/ src/",
    "export": "pegboard export openai --profile chat",
    "tokens": "pegboard tokens",
    "serve": "pegboard serve --port 8000",
    "install": "pegboard install claude-code --profile chat",
    "demo": "pegboard demo --once",
    "lock": "pegboard lock diff",
    "doctor": "pegboard doctor",
    "consent": "pegboard consent ls --all",
    "tasks": "pegboard tasks ls",
    "keys": "pegboard keys rotate ann-laptop --overlap 24h",
    "store": "pegboard store restore backups/monday --overwrite",
    "ingest": "pegboard ingest handbook --space s1",
    "workspace": "pegboard workspace stats",
    "schema": "pegboard schema --editor",
    "completion": "pegboard completion zsh",
}
# What cannot be the name of a module.
MODULES = {"import": "importing"}
UNSUPPORTED_COMMANDS = frozenset("audit plan".split())

SHARED_OPTIONS = ("--config", "--profile", "--as", "--json")

_CONFIG = "Configuration file; by default pegboard.yaml, here or in a folder above."
_PROFILE = "See the tools as this profile; without one, all groups."
_AS = "Act as somebody: user=ann,space=s1,roles=operator,profile=chat."
_ABOUT_ALL = ("--help", "-h", "--version")
_SHARED = Group("Options of every command", sort_key=99)


def _unknown_command(word: str) -> CommandError:
    """Say which command was meant; cyclopts would import all of them to say it."""
    if word.startswith("-"):
        near = nearest_one(word, SHARED_OPTIONS)
    else:
        near = nearest_one(word, COMMANDS)
        near = near and f'"{near}"'
    meant = f"Did you mean {near}?" if near else f"Commands: {', '.join(COMMANDS)}."
    return CommandError(f'Unknown command "{word}". {meant} See `pegboard --help`.')


def build_app(terminal: Terminal, *, owns_process: bool = False) -> App:
    """Return the command line; call its `meta` with the words.

    In a process of its own, a command freezes the loaded modules, so that no collection looks through them.
    """
    app = App(
        name="pegboard",
        help="Hang every tool once: see, explain, call and serve the tools of your agents.",
        # Plain text needs neither a Markdown reader nor a highlighter, which cost more than all the rest.
        help_format="plaintext",
        help_epilogue="Start with `pegboard init`, then `pegboard list`. `pegboard COMMAND --help` explains a command.",
        default_parameter=Parameter(negative="", show_default=False),
    )
    for place, (name, summary) in enumerate(COMMANDS.items()):
        module = MODULES.get(name, name)
        app.command(
            f"pegboard.cli.commands.{module}:{module}_command",
            name=name,
            help=summary,
            help_epilogue=f"Example: {EXAMPLES[name]}",
            sort_key=place,
        )

    @app.meta.default
    def launch(  # pyright: ignore[reportUnusedFunction] - cyclopts calls it
        *words: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
        config: Annotated[
            Path | None, Parameter(name=["--config", "-c"], env_var="PEGBOARD_CONFIG", group=_SHARED, help=_CONFIG)
        ] = None,
        profile: Annotated[str | None, Parameter(group=_SHARED, help=_PROFILE, completer=profile_names)] = None,
        identity: Annotated[str | None, Parameter(name="--as", env_var="PEGBOARD_AS", group=_SHARED, help=_AS)] = None,
        json: Annotated[bool, Parameter(group=_SHARED, help="Print one JSON document instead of tables.")] = False,
    ) -> Any:
        if words and words[0] == "help":
            words = (*words[1:], "--help")
        if words and words[0] in UNSUPPORTED_COMMANDS:
            raise CommandError(f"`pegboard {words[0]}` is not in this version yet.", kind="not_yet")
        if words and words[0] not in COMMANDS and words[0] not in _ABOUT_ALL:
            raise _unknown_command(words[0])
        command, bound, not_parsed = app.parse_args(words, exit_on_error=False, print_error=False)
        # Everything is loaded by now, so collections only look at the objects that the command makes.
        if owns_process:
            gc.freeze()
        gc.enable()
        if "options" not in not_parsed:
            return command(*bound.args, **bound.kwargs)
        close_own_memory()  # The environment holds keys, and tools that we start run as the same user.
        options = Options(
            config=config,
            profile=profile,
            identity=Identity() if identity is None else Identity.parse(identity),
            json=json,
            terminal=terminal,
            completion_script=lambda shell: app.generate_completion(prog_name="pegboard", shell=shell),
        )
        return command(*bound.args, **bound.kwargs, options=options)

    return app
