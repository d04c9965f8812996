"""Pictures of the terminal show what the commands print today."""

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_pictures_show_what_the_commands_print_and_load_nothing() -> None:
    checked = subprocess.run(
        [sys.executable, DOCS / "pictures.py", "--check"], capture_output=True, text=True, timeout=120
    )

    assert (checked.returncode, checked.stderr) == (0, "")
    for picture in (DOCS / "images").glob("*.svg"):
        text = picture.read_text(encoding="utf-8")
        assert "url(http" not in text
        assert "<script" not in text
