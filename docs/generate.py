"""Write docs/reference/ and the list of pages on the start page, so that they cannot fall behind the code.

python docs/generate.py           write the pages
python docs/generate.py --check   list the outdated pages; exit with 1 if there are any
"""

# ruff: noqa: E501 - a table reads best with a row a line

from __future__ import annotations

import inspect
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, get_args

import build_site
from pydantic.json_schema import models_json_schema

import pegboard
from pegboard.authoring.option_table import OPTIONS, Option
from pegboard.authoring.options import ToolKeywords
from pegboard.cli import main as run_command
from pegboard.cli.actions import ACTIONS
from pegboard.cli.app import COMMANDS
from pegboard.config import json_schema
from pegboard.config.forms.agent_form import AgentFile, AstromeshFile
from pegboard.config.unsupported import UNSUPPORTED
from pegboard.model.bounds import Bounds
from pegboard.model.decision import Code
from pegboard.model.error import ERROR_KINDS, CallError
from pegboard.model.event import EventType
from pegboard.model.hook import HookKind
from pegboard.server.http_api.problem_details import KIND_OF_STATUS, STATUS_OF_KIND
from pegboard.sources.builtin.builtins import BUILTINS, builtin_kind

PAGES = Path(__file__).resolve().parent / "reference"
# Their constructors are not for callers, or would repeat another page.
_MADE_FOR_YOU = ("Bounds", "CallContext", "View")
HEAD = "<!-- Written by docs/generate.py. Do not edit: run it again. -->\n<!-- fmt: off -->\n"

REQUESTS = {
    400: (
        "A query parameter is unknown, invalid or repeated, or the body is not strict JSON.",
        "Correct the request; `detail` names the problem.",
    ),
    401: (
        "The credential is missing or not valid.",
        "Send `Authorization: Bearer …`; `WWW-Authenticate` contains the address that issues tokens.",
    ),
    403: (
        "The credential gives no rights to this path or lacks a scope, or the `Origin` is not allowed.",
        "Ask the operator.",
    ),
    404: ("For this caller, the path, profile, cursor or running call does not exist.", "See `/openapi.json`."),
    405: ("The path does not support this method.", "Use one of the methods in `Allow`."),
    408: ("The body did not arrive in time.", "Send it again."),
    413: ("The body is longer than `request_body_bytes` of the [limits](limits.md).", "Send less."),
    415: ("The body is compressed, or is not `application/json`.", "Send plain JSON."),
    421: (
        "The `Host` is not a name of this server.",
        "Use an address of the server, or ask the operator to add the name with `--allow-host`.",
    ),
    429: ("Too many event streams are open.", "Close one, or retry after `Retry-After`."),
    500: ("The server failed.", "Look in its log."),
    503: (
        "The server has reached its limit of requests, or cannot check credentials now.",
        "Retry after `Retry-After`.",
    ),
}

KINDS = {
    "not_found": ("This caller has no such tool. The error is the same for unknown, hidden, denied and internal-only tools.", "List the tools."),
    "invalid_arguments": ("The arguments do not match the schema. `details.problems` lists each problem with its path.", "Correct the arguments and call again."),
    "rate_limited": ("A rate limit is reached. This call did not count.", "Wait `retry_after_s` seconds, or use another tool."),
    "ratelimit_unavailable": ("The shared store of rate limits is unavailable, and the tool is not read-only.", "Try again later."),
    "consent_required": ("A person must approve the call, and nobody could be asked.", "Use a client that can ask, or pass `approve=` in the context."),
    "consent_declined": ("A person declined the call.", "Do not ask again; try something else."),
    "consent_expired": ("Nobody answered in time.", "Call again when somebody can answer."),
    "consent_mismatch": ("The arguments or the tool changed after the approval.", "Ask for approval of the call as it is now."),
    "connection_required": (
        "The person has to connect an account first, or reconnect it.",
        "Open the link in the error or run `pegboard connect SOURCE`, then call again.",
    ),
    "hook_refused": ("A before-hook denied the call, failed or timed out.", "Read the reason and change the call."),
    "timeout": ("The tool took longer than its timeout.", "Ask for less, or raise `timeout_s`. If `outcome_unknown` is set, the tool may still have taken effect."),
    "cancelled": ("The call was cancelled.", "Call again if you still need the result."),
    "busy": ("Too many calls of this tool, or in this process, are running.", "Try again."),
    "budget_exceeded": ("A budget of the request, agent or caller is used up.", "Finish with what you have. The message says when the budget resets."),
    "recursion_limit": ("Agents or gateways called each other too deeply or in a circle.", "Do the work at this level."),
    "upstream_unavailable": ("The server that runs the tool is unavailable.", "Try again, or use another tool."),
    "upstream_lost": ("The connection to the server that runs the tool broke during the call. The tool may still have taken effect.", "Check before you repeat the call."),
    "upstream_error": ("The service that runs the tool returned an error.", "Read the message."),
    "upstream_auth": ("The service that runs the tool rejected Pegboard's credentials.", "Ask the operator to correct them."),
    "protocol_error": ("The server that runs the tool violated its protocol.", "Report it to the operator."),
    "blocked_destination": ("Calls to this address are not allowed.", "Use a public address, or ask the operator to allow this one."),
    "result_too_large": ("The result is larger than the limit.", "Ask for less."),
    "output_invalid": ("The result does not match the tool's output schema.", "This is a bug in the tool: report it."),
    "template_error": ("A template could not be rendered.", "Ask the operator to correct it."),
    "read_only": ("The call would write, and only reading is allowed.", "Change the call so that it only reads."),
    "schema_too_complex": ("A schema is too deep or too large.", "Simplify it."),
    "needs_review": (
        "A server changed the definition of a tool after you accepted it, or an ingest would remove most of the documents of a source.",
        "Ask the operator to review the change.",
    ),
    "storage_unavailable": ("Data could not be stored. The old content is kept.", "Try again later."),
    "audit_unavailable": ("The audit log is required but unavailable.", "Try again later."),
    "shutting_down": ("The server is shutting down.", "Connect again."),
    "tool_error": ("The tool failed. The exception is in the log, under the id of the call.", "Try something else."),
    "config_invalid": ("The configuration is not valid.", "Run `pegboard check`, which shows the line and the reason."),
}  # fmt: skip

CODES = {
    "unknown": ("No tool has this name.", "Correct the name."),
    "internal": ("The tool is `internal_only`.", "Name the tool in your own code: `view(ctx, internal=[…])`."),
    "group": (
        "The caller's profile includes none of the tool's groups.",
        "Include one of these groups in the profile.",
    ),
    "policy": ("A policy denies the tool, or does not allow it.", "Remove the tool from `deny`, or add it to `allow`."),
    "quarantine": (
        "The definition of the tool is new, changed or suspicious, and was not accepted yet.",
        "Review the definition and accept it.",
    ),
    "source": ("The source of the tool, such as an MCP server, is unavailable.", "Start or repair the source."),
    "connection": (
        "The caller has not connected the account that the tool needs. The tool is hidden only if the profile sets `hide_unconnected`.",
        "Connect the account with `pegboard connect SOURCE`, or through the link in the error of a call.",
    ),
    "factory": (
        "The context lacks an object (a factory) that the tool needs.",
        "Pass the factory: `ToolContext(factories={…})`.",
    ),
    "available": ("The `available` condition of the tool is false now.", "Make the condition true."),
    "builder": ("The function that builds the tool failed.", "Repair this function."),
    "visible": ("The caller may use the tool.", "–"),
}

HOOKS = {
    "before": (
        "`hook(call) -> Verdict \\| None`",
        "Allows, denies, asks for approval, or replaces the arguments. If the hook fails, the call is denied.",
    ),
    "around": (
        "`hook(call, proceed) -> value`",
        "Awaits `proceed()` and returns a value. If the hook fails, the call fails.",
    ),
    "after": ("`hook(call, result) -> value \\| None`", "Runs after a success. A returned value replaces the result."),
    "on_error": ("`hook(call, result)`", "Runs after a failure. Cannot change the result."),
    "on_complete": ("`hook(call, result)`", "Runs after every call, however it ended. Cannot change the result."),
}

EVENTS = {
    "on_tool_call": "A call started.",
    "on_tool_result": "A call ended. Sent exactly once per call; `ok` says whether it succeeded.",
    "on_sub_agent_start": "A sub-agent started inside a call.",
    "on_sub_agent_chunk": "The sub-agent wrote some text.",
    "on_sub_agent_tool_call": "The sub-agent called a tool.",
    "on_sub_agent_tool_result": "A call by the sub-agent ended.",
    "on_sub_agent_end": "The sub-agent ended.",
    "on_progress": "A tool reported progress.",
    "on_batch_started": "A batch of calls started.",
    "on_batch_completed": "All calls of the batch ended.",
}


# ---------------------------------------------------------------- pages


def errors_page() -> Iterator[str]:
    """Yield the lines of errors.md."""
    yield from _opening("Error kinds and codes", "This page lists every error, what it means and what to do about it.")
    yield "If a call fails, its `ToolResult` has `is_error` set and contains a `ToolError`. The `kind` of the error is one of the following."
    yield "*Retry* is `yes` if the same call may succeed later (`retryable`). *HTTP* is the status under `/v1`.\n"
    rows = [
        (f"`{kind}`", *KINDS[kind], "yes" if CallError(kind, "").error.retryable else "", str(STATUS_OF_KIND[kind]))  # type: ignore[arg-type, index]
        for kind in KINDS
    ]
    yield from _table(("Kind", "What happened", "What to do", "Retry", "HTTP"), rows)
    yield "Over MCP, `not_found` is the JSON-RPC error −32602. All other errors are results with `isError: true`.\n"
    yield "## Errors of HTTP requests\n"
    yield "The server refuses these requests before it looks up any tool. The response is a problem details document (RFC 9457) with one of these kinds.\n"
    rows = [(f"`{KIND_OF_STATUS[status]}`", *REQUESTS[status], str(status)) for status in KIND_OF_STATUS]
    yield from _table(("Kind", "What happened", "What to do", "HTTP"), rows)
    yield "## Why a tool is hidden\n"
    yield "`view.why(name)` and `pegboard why` check these codes in this order, and return the first one that applies.\n"
    yield from _table(("Code", "Meaning", "Smallest change"), [(f"`{code}`", *CODES[code]) for code in CODES])


def config_page() -> Iterator[str]:
    """Yield the lines of config.md."""
    yield from _opening("Configuration", "This page lists every key of `pegboard.yaml`.")
    yield "`pegboard schema` prints the same information as JSON Schema. With this schema, [your editor](../howto/editor.md) completes and checks the file.\n"
    yield "* `${NAME}` and `${NAME:-default}` read an environment variable."
    yield "* `${file:/run/secrets/key}` reads a file and drops its final newline. A relative path starts at the folder of the config."
    yield "* `$${` stands for a literal `${`."
    yield "* Other forms, such as `$NAME`, `{{NAME}}` and `%NAME%`, are not expanded. Where a secret is expected, they are refused; elsewhere, `pegboard check` warns about them.\n"
    yield "Anchors, aliases and merge keys of YAML work. Top-level keys that begin with `x-` are ignored, as in Docker Compose. You can keep shared parts there, such as `x-limits: &limits {rate_limit: 10/60s}`, and use them with `<<: *limits`.\n"
    schema = json_schema()
    yield "## The file\n"
    yield from _keys(schema)
    for name, part in schema["$defs"].items():
        if name == "Limits":
            yield "## limits\n\nSee [Limits](limits.md) for the names and defaults.\n"
        elif "properties" in part:
            yield f"## {_spaced(name)}\n"
            yield f"{_in_a_line(part.get('description', ''))}\n"
            yield from _keys(part)
    yield "## Not in this version\n"
    yield "Pegboard refuses these keys. The error shows the file, line and column.\n"
    rows = [
        (f"`{key.replace('.*', '[]')}`", reason) for key, reason in UNSUPPORTED.items() if not key.startswith("spec.")
    ]
    yield from _table(("Key", "What to do"), rows)


def agents_page() -> Iterator[str]:
    """Yield the lines of agents.md."""
    yield from _opening("Agent files", "This page lists every key of an agent file, and the keys that are refused.")
    yield "List agent files under `files:` in the config. For examples, see [Define agents in files](../howto/agents.md). The first table, *agent file*, has the keys at the top level of the file. Each of the other tables describes one part of the file.\n"
    forms = [(AgentFile, "validation"), (AstromeshFile, "validation")]
    drawn = models_json_schema(forms, ref_template="#/$defs/{model}")[1]["$defs"]
    for name, part in drawn.items():
        if "properties" in part:
            yield f"## {_spaced(name)}\n"
            yield f"{_in_a_line(part.get('description', ''))}\n"
            yield from _keys(part)
    yield "## Keys that are refused\n"
    yield "These keys and values of `astromesh/v1` are not supported. Any other unknown key is refused too.\n"
    rows = [(f"`{key}`", reason) for key, reason in UNSUPPORTED.items() if key.startswith("spec.")]
    yield from _table(("Key", "What to do"), rows)


def cli_page() -> Iterator[str]:
    """Yield the lines of cli.md."""
    yield from _opening("Command line", "This page lists every command and option of `pegboard`.")
    yield "Exit codes: 0 for success, 1 if the tool failed or the check found a problem, 2 for wrong usage or an invalid configuration.\n"
    yield from _fenced(_help([]))
    for name, command in COMMANDS.items():
        yield f"## pegboard {name}\n"
        yield f"{command.summary}\n"
        yield from _fenced(_help([name]))
        for action in ACTIONS.get(name, ()):
            yield from _fenced(_help([name, action]))


def limits_page() -> Iterator[str]:
    """Yield the lines of limits.md."""
    yield from _opening("Limits", "This page lists every limit that you can change, with its default.")
    yield "To change a limit, use `Catalog(bounds=Bounds(…))` in Python or `limits:` in the config.\n"
    rows: list[tuple[str, ...]] = []
    for line in inspect.getsource(Bounds).splitlines():
        if line.startswith("    # "):
            rows.append((f"**{line.strip('# ')}**", "", "", ""))
        elif found := re.match(r"    (\w+): (?:int|float) = .*?  # (.+)", line):
            value: float = getattr(Bounds(), found[1])
            unit = "bytes" if found[1].endswith("_bytes") else "seconds" if found[1].endswith("_s") else ""
            shown = f"{value:,g}" if isinstance(value, float) else f"{value:,}"
            rows.append((f"`{found[1]}`", shown, unit, found[2]))
    yield from _table(("Limit", "Default", "Unit", "What it limits"), rows)


def python_page() -> Iterator[str]:
    """Yield the lines of python.md."""
    yield from _opening("Python", "Every public name of `pegboard`, every hook and every event.")
    yield "## Hook points\n"
    yield 'Use these names as decorators (`@catalog.before("glob")`), as methods of a class tool, or under `on:` in the config.\n'
    yield from _table(("Point", "Signature", "What it may do"), [(f"`{name}`", *HOOKS[name]) for name in HOOKS])
    yield "## Events\n"
    yield "`catalog.observe(observer)` calls the methods of `observer` that have these names, each with an `Event`.\n"
    yield from _table(("Event", "When"), [(f"`{name}`", EVENTS[name]) for name in EVENTS])
    yield "## Options of a tool\n"
    yield "Keyword arguments of `@catalog.tool(…)` and of class tools, `class X(Tool, …)`. `@catalog.builder(…)` takes those marked *yes*."
    yield "A subclass inherits every option except those marked *own*, and merges the mappings marked *merged*. In a config, each tool also has a `name`.\n"
    rows = [
        (
            f"`{option.name}`",
            f"`{_escaped(str(_annotation(ToolKeywords.__annotations__[option.name])))}`",
            "" if option.default is None else f"`{option.default!r}`",
            "yes" if option.of_builder else "",
            "" if option.inheritance == "inherited" else option.inheritance,
            _yaml_key(option),
            _escaped(option.meaning),
        )
        for option in OPTIONS
    ]
    yield from _table(("Option", "Type", "Default", "Builder", "Subclass", "In a config", "Meaning"), rows)
    for name in pegboard.__all__:
        yield from _described(name, getattr(pegboard, name))


def builtins_page() -> Iterator[str]:
    """Yield the lines of builtins.md."""
    yield from _opening(
        "Built-in tools", "This page lists the arguments, configuration and result of each built-in tool."
    )
    yield "To add a built-in tool, list it under `tools:`, such as `{name: read_file, type: builtin, config: {roots: [files]}}`. All keys are listed under"
    yield "[builtin](config.md#builtin). [examples/builtins](../../examples/builtins/README.md) uses every built-in tool.\n"
    for name in BUILTINS:
        kind = builtin_kind(name)
        spec, config = kind.spec, kind.config.model_json_schema()
        hints = {"read-only": spec.annotations.read_only, "destructive": spec.annotations.destructive,
                 "idempotent": spec.annotations.idempotent, "open-world": spec.annotations.open_world}  # fmt: skip
        yield f"## {name}\n"
        yield f"{_escaped(spec.description)}\n"
        yield f"Hints: {', '.join(word for word, holds in hints.items() if holds) or 'none'}.\n"
        yield from _keys(spec.input_schema, "Argument (* required)")
        if config.get("properties"):
            yield f"{_in_a_line(inspect.getdoc(kind.config) or '')}\n"
            yield from _keys(config, "Config (* required)")
        yield from _keys(spec.output_schema, "Result (* always)")


def start_page() -> Iterator[str]:
    """Return the start page: the text before the list of all pages as it is, and the list from the navigation of the site."""
    docs = PAGES.parent
    head = "## All pages\n"
    yield (docs / "README.md").read_text(encoding="utf-8").partition(head)[0] + head
    for section, places in build_site.navigation():
        yield f"**{section}**\n"
        for place in places:
            path = docs / place
            # The page of all outages links to the others; the list of decisions is written by the build of the site.
            if path.exists() and path.parent.name != "outages" and place != "README.md":
                yield f"* [{build_site.title_of(path.read_text(encoding='utf-8'))}]({place})"
            elif place.startswith("decisions/"):
                yield "* [Decisions](decisions/)"
        yield ""


GENERATED = {
    "../README.md": start_page,
    "agents.md": agents_page,
    "builtins.md": builtins_page,
    "errors.md": errors_page,
    "config.md": config_page,
    "cli.md": cli_page,
    "limits.md": limits_page,
    "python.md": python_page,
}


# ---------------------------------------------------------------- parts of pages


def _opening(title: str, goal: str) -> Iterator[str]:
    yield HEAD
    yield f"# {title}\n"
    yield f"{goal}\n"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _fenced(text: str, language: str = "text") -> Iterator[str]:
    yield f"```{language}\n{text.rstrip()}\n```\n"


def _keys(schema: dict[str, Any], head: str = "Key (* required)") -> Iterator[str]:
    """Yield a table of the keys of a mapping; the defaults have a column if there are any."""
    required, parts = schema.get("required", []), schema["properties"]
    defaults = {key: part["default"] for key, part in parts.items() if part.get("default") not in (None, [], {}, "")}
    rows = [
        (
            f"`{key}`" + (" *" if key in required else ""),
            _escaped(_kind(part)),
            *((f"`{json.dumps(defaults[key])}`" if key in defaults else "",) if defaults else ()),
            _escaped(_in_a_line(part.get("description", ""))),
        )
        for key, part in parts.items()
    ]
    yield from _table((head, "Value", *(("Default",) if defaults else ()), "Meaning"), rows)


def _kind(part: dict[str, Any]) -> str:
    """Return the kind of value a key takes, in a few words."""
    if "const" in part:
        return str(part["const"])
    if "enum" in part:
        return " | ".join(map(str, part["enum"]))
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return "" if name == "FromEnvironment" else _spaced(name)
    for key in ("anyOf", "oneOf"):
        if key in part:
            return " | ".join(dict.fromkeys(filter(None, map(_kind, part[key]))))
    if part.get("type") == "array":
        inner = _kind(part.get("items", {}))
        return f"list of {inner}" if inner else "list"
    if part.get("type") == "object" and isinstance(part.get("additionalProperties"), dict):
        inner = _kind(part["additionalProperties"])
        return f"mapping to {inner}" if inner else "mapping"
    if isinstance(part.get("type"), list):
        return " | ".join(_kind({"type": each}) for each in part["type"])
    return {"object": "mapping", "string": "text", "boolean": "true | false", "array": "list"}.get(
        part.get("type", ""), part.get("type", "any")
    )


def _help(words: list[str]) -> str:
    """Return the help of a command, at a fixed width."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100"
    shown = StringIO()
    try:
        with redirect_stdout(shown):
            run_command([*words, "--help"])
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
    return "\n".join(line.rstrip() for line in shown.getvalue().splitlines())


def _described(name: str, thing: Any) -> Iterator[str]:
    yield f"## {name}\n"
    if not (inspect.isclass(thing) or inspect.isfunction(thing)):
        what = "version of Pegboard" if name == "__version__" else "catalog that class tools register on"
        yield f"The {what}, a `{type(thing).__name__}`.\n"
        return
    if name not in _MADE_FOR_YOU:
        yield from _fenced(_signature(name, thing))
    if own := _own_doc(thing):
        yield from _prose(own)
    if not inspect.isclass(thing):
        return
    for attribute, value in _members(thing):
        if isinstance(value, property):
            yield from _prose(f"**`.{attribute}`** {_own_doc(value.fget)}")
            continue
        bare = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        yield from _fenced(
            _signature(f"{name}.{attribute}", bare, is_method=not isinstance(value, staticmethod)), "text"
        )
        if words := _own_doc(bare):
            yield from _prose(words)


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties that a class, or a base of ours, defines."""
    seen: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("pegboard") and (base is cls or base.__name__ not in pegboard.__all__):
            seen.update(vars(base))
    for attribute, value in seen.items():
        is_method = inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)
        if is_method and not attribute.startswith("_") and attribute != "of_call":
            yield attribute, value


def _own_doc(thing: Any) -> str:
    text = inspect.getdoc(thing) or ""
    # A dataclass without a docstring gets its signature for one, a NamedTuple the word alias.
    return "" if re.match(r"^(\w+\(|Alias for field)", text) else text


def _prose(text: str) -> Iterator[str]:
    """Yield a docstring as Markdown: examples and sections become blocks, so that nothing in them is read as markup."""
    example = re.search(r"^>>> .*(?:\n.+)*", text, re.MULTILINE)
    before = text if example is None else text[: example.start()] + text[example.end() :]
    before = re.sub(r"\n{3,}", "\n\n", before)
    words, *sections = re.split(r"\n(?=(?:Args|Raises|Returns|Source):\n)", before)
    yield f"{words.strip()}\n"
    for section in sections:
        yield from _fenced(section.rstrip())
    if example is not None:
        yield from _fenced(example[0], "python")


def _signature(name: str, thing: Any, *, is_method: bool = False) -> str:
    try:
        parameters = list(inspect.signature(thing).parameters.values())
    except ValueError:
        return name
    shown = [_parameter(item) for item in (parameters[1:] if is_method else parameters)]
    kinds = [item.kind for item in (parameters[1:] if is_method else parameters)]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        shown.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    returns = getattr(thing, "__annotations__", {}).get("return")
    arrow = f" -> {_annotation(returns)}" if returns is not None and not inspect.isclass(thing) else ""
    whole = f"{name}({', '.join(shown)}){arrow}"
    return whole if len(whole) <= 110 else f"{name}(\n    " + ",\n    ".join(shown) + f",\n){arrow}"


def _parameter(item: inspect.Parameter) -> str:
    marks = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(item.kind, "")
    text = marks + item.name
    if item.annotation is not inspect.Parameter.empty:
        text += f": {_annotation(item.annotation)}"
    if item.default is inspect.Parameter.empty:
        return text
    default = repr(item.default)
    is_plain = isinstance(item.default, str | int | float | bool | tuple | None) and "<" not in default
    return f"{text} = {default if is_plain else '…'}"


def _annotation(kind: Any) -> Any:
    found = getattr(kind, "__forward_arg__", kind)
    return found if isinstance(found, str) else getattr(found, "__name__", found)


def _yaml_key(option: Option) -> str:
    """Return the key of an option in a config, or ``""`` if it has none."""
    if option.yaml is None:
        return ""
    return f"`{option.yaml.within}.{option.yaml_key}`" if option.yaml.within else f"`{option.yaml_key}`"


def _spaced(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.removesuffix("Form")).lower()


def _in_a_line(text: str) -> str:
    return " ".join(text.split())


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


# ---------------------------------------------------------------- run


def check_complete() -> None:
    """Refuse to write pages with a missing entry."""
    for words, known in (
        (KINDS, ERROR_KINDS),
        (REQUESTS, KIND_OF_STATUS),
        (CODES, set(get_args(Code))),
        (HOOKS, set(get_args(HookKind))),
        (EVENTS, set(get_args(EventType))),
    ):
        if set(words) != set(known):
            raise SystemExit(
                f"docs/generate.py must describe each of {sorted(known)}; now {sorted(set(words) ^ set(known))}."
            )


def main(words: list[str]) -> int:
    """Write the pages, or check them. Return the exit code."""
    check_complete()
    stale: list[str] = []
    for name, page in GENERATED.items():
        text = "\n".join(page()).rstrip() + "\n"
        path = PAGES / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in words:
            path.write_text(text, encoding="utf-8")
    verb = "outdated: run python docs/generate.py" if "--check" in words else "written"
    print("\n".join(f"{name}: {verb}" for name in stale) or "Every page is up to date.")
    return 1 if stale and "--check" in words else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
