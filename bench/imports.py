"""Imports: what starting costs before anything is done, in fresh processes.

`from pegboard import …` and `import pydantic` are taken less the bare interpreter, once with byte code
at hand and once without any (the standard library's included). `pegboard --help` stands beside an
app of cyclopts with as many commands, both whole.
"""

from __future__ import annotations

from bench import peers
from bench.measure import THOROUGH, Effort, Row, compared
from bench.processes import Starter, starter

OURS = "from pegboard import Catalog, Tool, ToolContext, Field; Catalog()"
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
    floor, ours = "import pydantic", f"pegboard: import and Catalog(), {how}"
    codes = {"bare": "pass", floor: floor, ours: OURS, **{peer: peer for peer in beside}}
    ways = {name: start.cost("-c", code) for name, code in codes.items()}
    return compared(ways, effort, floor=floor, held={ours: (0.7, None)}, less="bare")


def helped(start: Starter, effort: Effort) -> list[Row]:
    told = start.told("-c", HELP)
    assert all(f" {name} " in told for name in COMMANDS), "pegboard has other commands than the app beside it"
    floor, ours = "bare cyclopts app --help", "pegboard --help"
    ways = {floor: start.cost("-c", BARE_HELP), ours: start.cost("-c", HELP)}
    return compared(ways, effort, floor=floor, held={ours: (1.5, None)})
