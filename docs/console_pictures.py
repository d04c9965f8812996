"""Console pictures: draw the pictures of the console in README and docs, with the browser of `make e2e`.

Run as `python docs/console_pictures.py` after the look of the console changed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
CONFIG = """
name: shop
python: [shop_tools]
groups: {read: Read, write: Change, admin: Administer}
profiles:
  clerk: {include: [read]}
  manager: {include: [read, write], deny: ["delete_*"]}
"""
TOOLS = """
from pegboard import default_catalog

NAMES = {
    "billing": "find_invoice send_reminder list_open_invoices write_off export_ledger",
    "calendar": "list_events find_free_slot book_room",
    "mail": "search_mail read_mail send_mail archive",
    "orders": "find_orders refund ship delete_order",
    "stock": "list_stock count_items delete_item",
    "support": "find_ticket reply close_ticket escalate merge_tickets summarize_thread",
}
READS, ADMIN, ASKS = ("find", "list", "search", "read", "summ", "count"), ("export_ledger", "merge_tickets"), (
    "send_mail", "write_off", "refund")
for namespace, names in NAMES.items():
    for name in names.split():
        group = "read" if name.startswith(READS) else "admin" if name in ADMIN else "write"
        available = (lambda ctx: ctx.user_id == "ann") if name == "count_items" else None
        options = {} if available is None else {"available": available}
        default_catalog.tool(name=name, namespace=namespace, groups=group, **options,
                             consent="always" if name in ASKS else "never",
                             description=name.replace("_", " ").capitalize() + ".")(lambda customer: customer)
"""


PAGE = ROOT / "docs" / "tutorial" / "first-tool.md"
"""The tutorial; its picture shows its own files."""


def main() -> None:
    files = {"pegboard.yaml": CONFIG, "shop_tools.py": TOOLS}
    for scheme in ("light", "dark"):
        draw(f"console-{scheme}.png", files, "?profile=manager", scheme=scheme, height=720)
    draw("tutorial-why.png", titled(PAGE), "/tools/delete_notes?profile=guest", scheme="light", height=560)


def titled(page: Path) -> dict[str, str]:
    """Return the last files that a page tells its readers to save, by name."""
    return dict(
        re.findall(r"^```\w+ title=(\S+)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    )


def draw(picture: str, files: Mapping[str, str], path: str, *, scheme: str, height: int) -> None:
    """Serve a config, and store the picture of one page of its console."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
        words = [str(Path(sys.executable).with_name("pegboard")), "serve", "--port", "0"]
        said = folder / "said"
        with said.open("wb") as stderr:
            server = subprocess.Popen(words, cwd=folder, stderr=stderr)
        try:
            while (found := re.search(r"people: (\S+)/login\?link=(\S+)\n", said.read_text(encoding="utf-8"))) is None:
                time.sleep(0.1)
            told = {"base": found[1], "link": found[2], "pages": [["console", path]], "pictures": str(folder),
                    "widths": [1280], "schemes": [scheme], "height": height}  # fmt: skip
            clients = ROOT / "tests/e2e/clients"
            subprocess.run(["node", "console.mjs", json.dumps(told)], cwd=clients, check=True, env=dict(os.environ))
        finally:
            server.terminate()
            server.wait()
        (IMAGES / picture).write_bytes((folder / f"console-{scheme}-1280.png").read_bytes())


if __name__ == "__main__":
    main()
