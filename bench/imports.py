"""Imports: what starting costs before anything is done, in fresh processes.

What a program pays that declares one tool and calls it once is set against importing what it would declare a model
with, `from pydantic import BaseModel, TypeAdapter, Field`; both less the bare interpreter, once with byte code at hand
and once without any (the standard library's included). Importing alone stands beside it: few programs do only that.
`pegboard --help` stands beside an app of cyclopts with as many commands, both whole.
"""

from __future__ import annotations

from bench import peers
from bench.measure import THOROUGH, Effort, Row, compared
from bench.processes import Starter, starter

OURS = "from pegboard import Catalog, Tool, ToolContext, Field; Catalog()"
FLOOR = "from pydantic import BaseModel, TypeAdapter, Field"
ONE_CALL = """
import asyncio
from pegboard import Catalog, ToolContext
catalog = Catalog()
@catalog.tool
def add(a: int, b: int) -> int:
    return a + b
assert asyncio.run(catalog.view(ToolContext()).call("add", {"a": 1, "b": 2})).structured == 3
"""
ABSENT = {"pydantic", "mcp", "ruamel", "limits"}
PEERS = ("import mcp", "import fastmcp") if peers.HAS_FASTMCP else ("import mcp",)
COMMANDS = ("init", "check", "list", "show", "why", "call", "export", "serve", "demo", "schema")
HELP = "import sys; sys.argv = ['pegboard', '--help']; from pegboard.cli import main; main()"
BARE_HELP = f"""
from cyclopts import App
app = App(name="bare", version="1")
for name in {COMMANDS!r}:
    def command(name: str = "x", *, json: bool = False):
        '''Do something.'''
    app.command(command, name=name)
app(["--help"])
"""


def run(effort: Effort = THOROUGH) -> list[Row]:
    """Measure the imports and the first words of the command line.

    Raises:
        RuntimeError: importing Pegboard brings in a package that it must not.
    """
    with starter() as start, starter(compiled=False) as uncompiled:
        if found := loaded(start):
            raise RuntimeError(f"Importing Pegboard brings in {found}; see `python -X importtime`.")
        return [
            *imported(start, effort, how="byte code at hand", beside=PEERS),
            *imported(uncompiled, effort, how="without byte code", beside=()),
            *helped(start, effort),
        ]


def loaded(start: Starter) -> list[str]:
    """Return which of the heavy packages our import brings in."""
    return start.told("-c", f"{OURS}\nimport sys\nprint(*sys.modules.keys() & {ABSENT!r})").split()


def imported(start: Starter, effort: Effort, *, how: str, beside: tuple[str, ...]) -> list[Row]:
    ours, imports = f"pegboard: import, one tool, one call, {how}", f"pegboard: import and Catalog(), {how}"
    codes = {"bare": "pass", FLOOR: FLOOR, ours: ONE_CALL, imports: OURS, **{peer: peer for peer in beside}}
    ways = {name: start.cost("-c", code) for name, code in codes.items()}
    return compared(ways, effort, floor=FLOOR, held={ours: (1.75, 1.5)}, less="bare")


def helped(start: Starter, effort: Effort) -> list[Row]:
    told = start.told("-c", HELP)
    assert all(f" {name} " in told for name in COMMANDS), "pegboard has other commands than the app beside it"
    floor, ours = "bare cyclopts app --help", "pegboard --help"
    ways = {floor: start.cost("-c", BARE_HELP), ours: start.cost("-c", HELP)}
    return compared(ways, effort, floor=floor, held={ours: (1.5, None)})
