"""app: the commands and the options they share; a command's own module is loaded when it is used."""

# Without `from __future__ import annotations`: cyclopts reads those of `launch`, which name a local group.
import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from cyclopts import App, Group, Parameter

from pegboard.cli.actions import ACTIONS, DEFAULT_ACTIONS
from pegboard.cli.command_error import CommandError
from pegboard.cli.completers import profile_names
from pegboard.cli.options import Identity, Options
from pegboard.cli.terminal import Terminal
from pegboard.core.names import nearest_one
from pegboard.egress.own_memory import close_own_memory


class Command(NamedTuple):
    """A command: the first line of its function's docstring, an example, and its module if that has another name."""

    summary: str
    example: str
    module: str = ""


# The panels of the help, in the order that a new user needs them. cyclopts imports `commands/NAME.py` when the
# command is used. Tests compare the table with the folder and the docstrings, and parse each example.
COMMAND_GROUPS = {
    "Start": {
        "init": Command("Write a first configuration, with comments.", "pegboard init"),
        "add": Command("Declare the tools of an MCP server or an HTTP API.", "pegboard add uvx mcp-server-time"),
        "import": Command(
            "Import servers, tools and agents from other programs.", "pegboard import mcp.json", module="importing"
        ),
        "check": Command("Check the configuration and print all its problems.", "pegboard check"),
        "serve": Command("Serve the tools over MCP and HTTP.", "pegboard serve --port 8000"),
        "install": Command(
            "Connect an MCP client to the tools of --profile.",
            "pegboard install claude-code --profile chat",
        ),
        "demo": Command("Show what Pegboard does, on a running server.", "pegboard demo --once"),
    },
    "Tools and agents": {
        "list": Command("List the tools that a caller may use.", "pegboard list --profile chat --all"),
        "show": Command("Show the full declaration of one tool.", "pegboard show word_count"),
        "why": Command(
            "Explain why a caller may or may not use a tool, and what would change that.",
            "pegboard why word_count --profile chat",
        ),
        "search": Command("Find tools by a description of the task.", 'pegboard search "create an issue" --limit 3'),
        "call": Command("Call one tool. All guards apply.", "pegboard call word_count text='one two'"),
        "export": Command(
            "Print the tools as function schemas of a model provider.", "pegboard export openai --profile chat"
        ),
        "agents": Command("List the agents, with their tools and the agents that each may run.", "pegboard agents"),
        "run": Command(
            "Run an agent, and show its answer and its tool calls as they happen.",
            'pegboard run sales "How large are they?"',
        ),
    },
    "Review": {
        "lint": Command(
            "Find problems that make tools hard to find, distinguish or use.", "pegboard lint --fail-on error"
        ),
        "refs": Command("Find names of unknown tools in prompts, code and configs.", "pegboard refs prompts/ src/"),
        "tokens": Command(
            "Show how many tokens the tool list costs, for each profile and exposure.", "pegboard tokens"
        ),
        "eval": Command(
            "Measure how well `searchTools` finds the right tools for your own requests.",
            "pegboard eval requests.yaml --embedder hashing",
        ),
        "matrix": Command(
            "Show the tools of each profile, or the callers that can use one tool.", "pegboard matrix refund"
        ),
        "plan": Command(
            "Show the effects of a changed config on each profile: tools, schemas and guards.",
            "pegboard plan --against origin/main --fail-on lost",
        ),
        "replay": Command(
            "Show how recorded calls would end under a config, without running anything.",
            "pegboard replay --from used.yaml --since 7d",
        ),
        "lock": Command("Pin the tool definitions of MCP servers, show changes, accept them.", "pegboard lock diff"),
    },
    "Approvals and accounts": {
        "consent": Command("Approve or deny calls that need a person's consent.", "pegboard consent ls --all"),
        "tasks": Command("List, show, cancel and resume tasks.", "pegboard tasks ls"),
        "connect": Command("Connect your own account at a source, in a browser.", "pegboard connect github"),
        "connections": Command(
            "List and delete people's connections to services.",
            "pegboard connections ls --user ann",
            module="person_accounts",
        ),
    },
    "Documents": {
        "ingest": Command(
            "Add documents to a space: a folder, a file, a page, a feed, a Git repository, a bucket or a web site.",
            "pegboard ingest handbook --space s1",
        ),
        "workspace": Command(
            "Show and remove stored documents, and grant access to spaces.", "pegboard workspace stats"
        ),
    },
    "Operate": {
        "doctor": Command("Show the state of all sources, stores, servers, models and keys.", "pegboard doctor"),
        "keys": Command(
            "Create, list, rotate and revoke API keys for callers over HTTP.",
            "pegboard keys rotate ann-laptop --overlap 24h",
        ),
        "audit": Command("Show and check the record of calls.", "pegboard audit ls --user ann --since 1d"),
        "usage": Command(
            "Count the calls in the audit, with their errors, latency, tokens and cost.",
            "pegboard usage --by user --since 30d",
        ),
        "forget": Command(
            "Delete a person's conversations, consents, grants and connected accounts, and the names in the audit.",
            "pegboard forget user:ann",
        ),
        "store": Command(
            "Back up, restore and migrate the stores of keys, consents, tasks, documents and conversations.",
            "pegboard store restore backups/monday --overwrite",
        ),
    },
    "Editor and shell": {
        "schema": Command(
            "Print the JSON Schema of the config, of agent files, or for an editor.",
            "pegboard schema --editor",
        ),
        "completion": Command("Print a completion script for a shell.", "pegboard completion zsh"),
    },
}
COMMANDS = {name: command for group in COMMAND_GROUPS.values() for name, command in group.items()}

SHARED_OPTIONS = ("--config", "--profile", "--as", "--json")

_CONFIG = "Configuration file; by default pegboard.yaml, here or in a folder above."
_PROFILE = "Use this profile. Without it, all groups are included."
_AS = "Act as somebody: user=ann,space=s1,roles=operator,profile=chat."
_ABOUT_ALL = ("--help", "-h", "--version")


def _unknown_command(word: str) -> CommandError:
    """Return the error with a suggestion; cyclopts would import all commands to make one."""
    if word.startswith("-"):
        near = nearest_one(word, SHARED_OPTIONS)
    else:
        near = (
            f"`pegboard --{word}`" if word in ("version", "config", "profile", "json") else nearest_one(word, COMMANDS)
        )
        near = f'"{near}"' if near in COMMANDS else near
    hint = f"Did you mean {near}?" if near else f"Commands: {', '.join(COMMANDS)}."
    return CommandError(f'Unknown command "{word}". {hint} See `pegboard --help`.')


def _epilogue(example: str) -> str:
    return f"Global options: see `pegboard --help`.\n\nExample: {example}"


def _with_actions(name: str, summary: str, panel: Group, place: int) -> App:
    """Return a command that has actions, each with its own help; their module is imported when one is used."""
    group = App(
        name=name,
        help=summary,
        help_epilogue=_epilogue(COMMANDS[name].example),
        group=panel,
        group_commands=Group("Commands"),
        sort_key=place,
    )
    for position, (action, (text, example)) in enumerate(ACTIONS[name].items()):
        group.command(
            f"pegboard.cli.commands.{COMMANDS[name].module or name}:{action.replace('-', '_')}_command",
            name=action,
            help=text,
            help_epilogue=_epilogue(example),
            sort_key=position,
        )
    return group


def with_default_action(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words with the default action added if a command with actions is given without one."""
    default = DEFAULT_ACTIONS.get(words[0]) if words else None
    has_action = len(words) > 1 and (not words[1].startswith("-") or words[1] in _ABOUT_ALL)
    return (*words[:1], default, *words[1:]) if default is not None and not has_action else tuple(words)


def build_app(terminal: Terminal, words: Sequence[str] = (), *, owns_process: bool = False) -> App:
    """Return the command line for `words`; call its `meta` with them.

    The global options are part of the help of `pegboard` only; the help of a command refers to it. In a process of its
    own, a command freezes the loaded modules, so that garbage collections skip them.
    """
    shared = Group("Global options", sort_key=99, show=COMMANDS.keys().isdisjoint(words))
    app = App(
        name="pegboard",
        group_commands=shared,
        help="List, explain, call and serve the tools of your agents.",
        # Plain text needs neither a Markdown parser nor a highlighter, which cost more than everything else.
        help_format="plaintext",
        help_epilogue="Start with `pegboard init`, then `pegboard list`. `pegboard COMMAND --help` explains a command.",
        default_parameter=Parameter(negative="", show_default=False),
    )
    panels: dict[str, Group] = {}
    for position, (title, commands) in enumerate(COMMAND_GROUPS.items()):
        panels |= dict.fromkeys(commands, Group(title, sort_key=position))
    for place, (name, command) in enumerate(COMMANDS.items()):
        if name in ACTIONS:
            app.command(_with_actions(name, command.summary, panels[name], place))
            continue
        module = command.module or name
        app.command(
            f"pegboard.cli.commands.{module}:{module}_command",
            name=name,
            help=command.summary,
            help_epilogue=_epilogue(command.example),
            group=panels[name],
            sort_key=place,
        )

    @app.meta.default
    def launch(  # pyright: ignore[reportUnusedFunction] - cyclopts calls it
        *words: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
        config: Annotated[
            Path | None, Parameter(name=["--config", "-c"], env_var="PEGBOARD_CONFIG", group=shared, help=_CONFIG)
        ] = None,
        profile: Annotated[str | None, Parameter(group=shared, help=_PROFILE, completer=profile_names)] = None,
        identity: Annotated[str | None, Parameter(name="--as", env_var="PEGBOARD_AS", group=shared, help=_AS)] = None,
        json: Annotated[bool, Parameter(group=shared, help="Print one JSON document instead of tables.")] = False,
    ) -> Any:
        if words and words[0] == "help":
            words = (*words[1:], "--help")
        if words and words[0] not in COMMANDS and words[0] not in _ABOUT_ALL:
            raise _unknown_command(words[0])
        words = with_default_action(words)
        command, bound, not_parsed = app.parse_args(words, exit_on_error=False, print_error=False)
        # Everything is loaded by now, so collections only examine the objects that the command creates.
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
