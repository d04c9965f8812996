"""Process exit: ends the process although threads may still be running."""

from __future__ import annotations

import logging
import os
import sys
import threading

EXIT_THREAD_S = 0.5  # seconds for threads that still run when the process ends


def exit_despite_threads() -> None:
    """End the process if worker threads are still running: a tool that never returns must not keep it alive."""
    if threading.current_thread() is not threading.main_thread():
        return
    for thread in threading.enumerate():
        if thread.name.startswith("pegboard-tool"):
            thread.join(EXIT_THREAD_S)
            if thread.is_alive():
                leave()


def leave_if_loading() -> None:
    """End the process if a thread is still loading modules that are no longer needed; call it last."""
    if any(thread.name == "pegboard-load" for thread in threading.enumerate()):
        leave()


def leave() -> None:
    """End the process now, with exit code 0."""
    logging.shutdown()
    sys.stderr.flush()
    os._exit(0)
