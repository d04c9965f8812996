"""Install command: the command line that adds an extra to Pegboard the way it was installed."""

import json
import shlex
from importlib.metadata import distribution
from urllib.parse import unquote, urlsplit


def install_command(extra: str) -> str:
    """Return the command that installs an extra from where this Pegboard came from."""
    direct_url = distribution("pegboard").read_text("direct_url.json")  # raw: metadata of Pegboard's own installation
    return command_for(extra, direct_url)


def command_for(extra: str, direct_url: str | None) -> str:
    """Return the command for the text of `direct_url.json`; `None` if an index was the origin.

    Source: the specification "Recording the Direct URL Origin of installed distributions" (PEP 610).
    """
    if direct_url is None:
        return f"pip install 'pegboard[{extra}]'"
    origin = json.loads(direct_url)
    url = str(origin["url"])
    if "dir_info" in origin:
        option = "-e " if origin["dir_info"].get("editable") else ""
        return f"pip install {option}{shlex.quote(f'{unquote(urlsplit(url).path)}[{extra}]')}"
    if "vcs_info" in origin:
        url = f"{origin['vcs_info']['vcs']}+{url}@{origin['vcs_info']['commit_id']}"
    if "subdirectory" in origin:
        url += f"#subdirectory={origin['subdirectory']}"
    return f"pip install {shlex.quote(f'pegboard[{extra}] @ {url}')}"
