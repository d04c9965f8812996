"""Web browser: opens a page in the browser of the person at this machine."""

from __future__ import annotations

import os
import subprocess
import sys

from pegboard.egress.process import clean_environment

_DESKTOP = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "XDG_CURRENT_DESKTOP",
            "XDG_SESSION_TYPE", "DBUS_SESSION_BUS_ADDRESS")  # fmt: skip


def open_in_browser(url: str) -> None:
    """Open a URL, and do not wait. Does nothing if there is no browser.

    Unlike other programs that we start, the browser outlives this process: it belongs to the person. It gets the
    variables of their desktop, and no others.
    """
    desktop = {name: value for name in _DESKTOP if (value := os.environ.get(name))}
    try:
        subprocess.Popen(  # noqa: S603 - our own interpreter, without a shell
            [sys.executable, "-I", "-m", "webbrowser", url],
            env=clean_environment(desktop),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return
