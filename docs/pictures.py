"""Pictures: draw the terminal pictures of README and docs from real runs, as SVG.

Run as `python docs/pictures.py` after the output of a command changed; with `--check` it only says which are out of
date, and exits 1. Each picture shows commands that really ran, on the files that the README tells its readers to save.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
IMAGES = ROOT / "docs" / "images"
COLUMNS = 100

# Each picture: its name, its title, and the commands in it as a reader types them.
PICTURES: dict[str, tuple[str, tuple[str, ...]]] = {
    "why": (
        "Why is the tool 'refund' missing?",
        (
            "pegboard list --profile support",
            "pegboard why refund --profile support",
            "pegboard call refund order=ann-1001 cents=500 --profile support",
        ),
    ),
}

_HUES = [(236, 106, 94), (126, 198, 153), (235, 192, 109), (104, 160, 240), (190, 140, 230), (98, 190, 200)]
THEME = TerminalTheme(
    (24, 26, 32),
    (222, 226, 235),
    [(24, 26, 32), *_HUES, (222, 226, 235)],
    [(120, 126, 140), *_HUES, (255, 255, 255)],
)


def run(command: str, folder: Path) -> str:
    """Return what a command prints, with colors, as a terminal of `COLUMNS` shows it."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith("PEGBOARD_") and name != "NO_COLOR"
    }
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    ended = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**kept, "PATH": path, "FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    return ended.stdout.rstrip("\n")


def drawn(name: str) -> str:
    """Return one picture as SVG; it loads nothing from elsewhere."""
    title, commands = PICTURES[name]
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    with TemporaryDirectory() as folder:
        for file, text in re.findall(
            r"^```\w+ title=(\S+)\n(.*?)^```$", README.read_text("utf-8"), re.DOTALL | re.MULTILINE
        ):
            Path(folder, file).write_text(text, encoding="utf-8")
        for place, command in enumerate(commands):
            if place:
                console.print()
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            console.print(Text.from_ansi(run(command, Path(folder))))
    console.print()  # the last line is cut off at its foot otherwise
    svg = console.export_svg(title=title, theme=THEME, unique_id=f"pegboard-{name}")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace("font-family: Fira Code, monospace", "font-family: ui-monospace, Menlo, Consolas, monospace")
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def main() -> int:
    """Write each picture, or say which are out of date."""
    is_check, stale = "--check" in sys.argv[1:], list[str]()
    IMAGES.mkdir(exist_ok=True)
    for name in PICTURES:
        target, svg = IMAGES / f"{name}.svg", drawn(name)
        if target.exists() and target.read_text(encoding="utf-8") == svg:
            continue
        stale.append(target.name)
        if not is_check:
            target.write_text(svg, encoding="utf-8")
            print(f"{target.name}: written")
    if is_check and stale:
        print(f"out of date: {', '.join(stale)}; run `python docs/pictures.py`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
