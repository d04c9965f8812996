"""Demo: serves the quickstart, connects to it over MCP as two callers, and prints what each of them sees."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol, cast

import mcp_types as types
import orjson
from mcp import Client, MCPError

from pegboard.catalog import Catalog
from pegboard.config import Config, context_for, load_catalog
from pegboard.extras import install_command
from pegboard.lazy import LazyModule
from pegboard.model.context import ToolContext
from pegboard.model.error import DefinitionError, PegboardError
from pegboard.model.profile import Profile
from pegboard.server.app import AppOptions, console_line, serve_http
from pegboard.server.listener import bound_to
from pegboard.server.principal import Principal

if TYPE_CHECKING:
    from mcp.client.context import ClientRequestContext

    from pegboard.workspace import document_workspace as documents
else:
    documents = LazyModule("pegboard.workspace.document_workspace")

# In a wheel the examples are inside the package, in a clone next to it.
_PACKAGE, _EXAMPLES = Path(__file__).parent, Path(__file__).parents[2] / "examples"
_LOOPBACK = "127.0.0.1"
_SHOWN_CHARS = 600
# A refusal is remembered and not asked again, so the approved change is a different one.
_DECLINED = {"page": "glossary.md", "old": "# Glossary", "new": "# Terms"}
_REPLACEMENT = {"page": "glossary.md", "old": "# Glossary", "new": "# Words"}
_SPACES = {"staff": "fernhill", "guest": "elsewhere"}
_QUESTION = {"query": "Which code opens the guest network?", "limit": 1}
_SUM = "SELECT region, count(*) AS orders, round(sum(total), 2) AS total FROM orders GROUP BY region ORDER BY total"
_DECISION = {"page": "decisions/0001-run-the-stages-of-a-call-in-one-fixed-order.md", "old": "before", "new": "after"}


class Screen(Protocol):
    """The output of the demo."""

    def say(self, text: str) -> None:
        """Write plain lines."""
        ...

    def heading(self, text: str) -> None:
        """Write the first line of a part."""
        ...


class AddressError(PegboardError):
    """The server cannot listen on the port."""


def run_demo(screen: Screen, *, once: bool = False, port: int | None = None) -> None:
    """Run the demo. Without `once` it keeps serving until Ctrl-C. Without `port` it uses a free one.

    Raises:
        AddressError: the port is taken.
        DefinitionError: the example is not there.
    """
    config_file = _short(find_quickstart())
    catalog, config = load_catalog(config_file, env=os.environ)
    # The demo's client only connects to this machine, so it must not use a proxy.
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = _LOOPBACK
    # Nobody has a key here; the person at the terminal opens the console with the link.
    login_token = "" if once else secrets.token_urlsafe(24)
    show = Show(catalog, config, screen, config_file=config_file, once=once, login_token=login_token)
    options = AppOptions(config=show.context, console=not once, login_token=login_token)
    try:
        serve_http(catalog, options, listening=lambda: bound_to(_LOOPBACK, port or 0), on_ready=show.begin)
    except OSError as error:
        raise AddressError(f"{_LOOPBACK}:{port or 0} cannot be listened on: {error.strerror or error}.") from error
    show.end()


def find_quickstart() -> Path:
    """Return the config of the example.

    Raises:
        DefinitionError: it did not come with this installation.
    """
    return _find_example("quickstart") / "pegboard.yaml"


def _find_example(name: str) -> Path:
    for place in (_PACKAGE / f"_{name}", _EXAMPLES / name):
        if (place / "pegboard.yaml").is_file():
            return place
    raise DefinitionError(f"The demo needs examples/{name}, which is missing here. Run it in a clone: make demo.")


class Show:
    """The visits of two callers to one server, and what they print. It runs in the loop of the server."""

    def __init__(
        self, catalog: Catalog, config: Config, screen: Screen, *, config_file: Path, once: bool, login_token: str
    ) -> None:
        self._catalog, self._config, self._screen, self._once = catalog, config, screen, once
        self._file, self._login_token = config_file, login_token
        self._task: asyncio.Task[None] | None = None
        self._error: BaseException | None = None
        self._published: list[str] = []
        self._scratch: TemporaryDirectory[str] | None = None

    # ------------------------------------------------------------ begin and end

    def context(self, principal: Principal) -> ToolContext:
        """Return the context of one request: the user, the space, and the factories for that profile."""
        factories = {"publisher": self._publisher} if principal.profile == "operator" else {}
        space = _SPACES.get(principal.profile or "")
        return context_for(self._config, user=principal.profile, space=space, factories=factories)

    def _publisher(self, _ctx: ToolContext) -> Callable[[str, str], None]:
        def publish(page: str, text: str) -> None:
            self._published.append(f"{page} ({len(text)} characters)")

        return publish

    def begin(self, address: str) -> None:
        """Connect the two callers; called when the server is ready."""
        self._task = asyncio.ensure_future(self._visits(address))
        self._task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if self._catalog.executor.closing:
            # The server was stopped, so the callers were disconnected; that is not an error.
            return
        self._error = error
        if self._once or error is not None:
            # The same as Ctrl-C: running calls end, then the server.
            signal.raise_signal(signal.SIGINT)

    def end(self) -> None:
        """Remove temporary files, and raise the error of the callers, if there was one."""
        if self._scratch is not None:
            self._scratch.cleanup()
        if self._error is not None:
            raise _cause(self._error)
        self._say("Stopped.")

    # ------------------------------------------------------------ the visits

    async def _visits(self, address: str) -> None:
        say = self._say
        say(f"Serving {self._file} over MCP at {address}/reader, {address}/editor and {address}/operator")
        if self._login_token:
            say(console_line(address, self._login_token).rstrip())
        async with _connected(f"{address}/reader") as reader, _connected(f"{address}/editor") as editor:
            await self._lists(reader, editor)
            await self._reasons()
            await self._guards(reader, editor)
        await self._consent(address)
        await self._documents(address)
        await self._afterwards()
        if not self._once:
            say(f"\nStill serving. Connect a client of yours to {address}/editor, or look in another terminal:")
            say(f"  pegboard --config {self._file} list --profile editor --all")
            say("Ctrl-C ends it.")

    async def _lists(self, reader: Client, editor: Client) -> None:
        self._screen.heading("What two callers see")
        for name, client in (("reader", reader), ("editor", editor)):
            tools = [tool.name for tool in (await client.list_tools()).tools]
            self._say(f"  {name:<6} {len(tools)} tools: {', '.join(tools)}")

    async def _reasons(self) -> None:
        self._screen.heading("Why is a tool hidden, and what would change that?")
        for profile, tool in (("reader", "replace_text"), ("editor", "publish"), ("editor", "show_changes")):
            ctx = context_for(self._config, user=profile)
            decision = await self._catalog.view(ctx, profile=profile).awhy(tool)
            self._say(f"  {profile}: {tool} is hidden, code '{decision.code}': {decision.reason}")
            if decision.fix is not None:
                self._say(f"    fix:  {decision.fix.text}")
            if decision.next is not None:
                then = "visible" if decision.next == "visible" else f"code '{decision.next}': {decision.next_reason}"
                self._say(f"    then: {then}")

    async def _guards(self, reader: Client, editor: Client) -> None:
        self._screen.heading("Guarded calls")
        await self._call("reader", reader, "search_docs", {"query": "one judge"}, note="the first of five")
        await self._call("reader", reader, "outline", {"page": "glossary.md", "depth": 9}, note="bad arguments")
        await self._call("reader", reader, "replace_text", _REPLACEMENT, note="hidden from this caller")
        await self._call("reader", reader, "no_such_tool", {}, note="unknown: the same words")
        await self._call("editor", editor, "replace_text", _DECISION, note="refused by a hook of the config")
        self._say("\n  reader keeps calling search_docs, until five calls in 30 seconds are reached:")
        for number in range(2, 7):
            result = await reader.call_tool("search_docs", {"query": "view"})
            self._say(f"    call {number}: {'ok' if not result.is_error else _text(result)}")

    async def _consent(self, address: str) -> None:
        self._screen.heading("A call that needs a person's yes")
        where = f"{address}/editor"
        async with _connected(where) as editor:
            await self._call("editor", editor, "replace_text", _REPLACEMENT, note="a client that cannot ask")
        async with _connected(where, answer=self._person("decline")) as editor:
            await self._call("editor", editor, "replace_text", _DECLINED, note="the person says no")
        async with _connected(where, answer=self._person("accept")) as editor:
            await self._call("editor", editor, "replace_text", _REPLACEMENT, note="the person says yes")
            tools = [tool.name for tool in (await editor.list_tools()).tools]
            self._say(f"\n  Now there is something to show, so the editor sees {len(tools)} tools: {', '.join(tools)}")
            await self._call("editor", editor, "show_changes", {}, note="available since the change")
        async with _connected(f"{address}/operator") as operator:
            await self._call("operator", operator, "publish", {}, note="the host lends the operator a publisher")
        self._say(f"    the publisher was given: {', '.join(self._published)}")

    async def _documents(self, address: str) -> None:
        self._screen.heading("Documents of one space, and who is in it")
        if find_spec("re2") is None:
            self._say(f"  Not shown. It needs more packages: `{install_command('docs')}`.")
            return
        self._scratch = TemporaryDirectory(ignore_cleanup_errors=True)
        handbook = _find_example("handbook")
        workspace = documents.Workspace(f"sqlite:{self._scratch.name}/documents.db")
        report = await workspace.ingest(handbook, space=_SPACES["staff"], source="handbook")
        self._say(f"  {report.counts['added']} files of {_short(handbook)} are in the space {_SPACES['staff']!r}.")
        self._catalog.use_documents(workspace.store)
        for name in _SPACES:
            self._catalog.profile(Profile(name=name, include=("navigation", "search", "document")))
        async with _connected(f"{address}/staff") as staff, _connected(f"{address}/guest") as guest:
            await self._call("staff", staff, "search_documents", _QUESTION, note="the answer is in a PDF")
            await self._call("staff", staff, "query_documents", {"sql": _SUM}, note="the rows of a CSV file")
            found: Any = (await staff.call_tool("find_by_name", {"pattern": "leave"})).structured_content
            read = {"document_id": found["items"][0]["document_id"], "end": 160}
            await self._call("staff", staff, "read_document", read, note="its beginning")
            await self._call("guest", guest, "search_documents", _QUESTION, note="the same, from another space")
            await self._call("guest", guest, "read_document", read, note="the same, with the id of the other space")

    async def _afterwards(self) -> None:
        self._screen.heading("What the host knows")
        self._say("  call_tally is internal-only: no caller sees it, and host code opens it by name.")
        view = self._catalog.view(context_for(self._config), internal=["call_tally"])
        tally: dict[str, int] = (await view.call("call_tally")).unwrap()
        for outcome, count in tally.items():
            self._say(f"    {count} × {outcome}")

    # ------------------------------------------------------------ what is printed

    def _say(self, text: str) -> None:
        self._screen.say(text)

    async def _call(self, who: str, client: Client, tool: str, arguments: Mapping[str, Any], *, note: str) -> None:
        self._say(f"\n  {who} calls {tool} {orjson.dumps(arguments).decode()}   ({note})")
        try:
            result = await client.call_tool(tool, dict(arguments))
        except MCPError as error:
            self._say(f"    JSON-RPC error {error.code}: {error.message}")
            return
        mark = "error" if result.is_error else "ok"
        text = "\n".join(f"      {line}" for line in _text(result).splitlines())
        self._say(f"    {mark}:\n{text}")

    def _person(self, action: str) -> Any:
        """Return a callback that prints the questions of the server as a client would, and answers them."""

        async def answer(_ctx: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
            self._say(f"\n    the server asks: {params.message}")
            self._say(f"    the person answers: {action}")
            return types.ElicitResult.model_validate({"action": action, "content": {} if action == "accept" else None})

        return answer


def _connected(address: str, *, answer: Any = None) -> Client:
    """Return a client without a cache, so that every list is the server's; `answer` answers for its user."""
    return Client(address, elicitation_callback=answer, cache=None)


def _cause(error: BaseException) -> BaseException:
    """Return the error itself, without the exception groups of the client around it."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    first, *others = group.exceptions
    return group if others else _cause(first)


def _text(result: types.CallToolResult) -> str:
    """Return the text of a result, cut where it is long."""
    text = "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _short(path: Path) -> Path:
    """Return a path relative to the current folder, where it lies below it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
