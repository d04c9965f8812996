"""Own memory: keeps other programs of the same user from reading this process's environment, memory and files."""

from __future__ import annotations

import ctypes
import sys

_PR_SET_DUMPABLE = 4  # Source: prctl(2)


def close_own_memory() -> bool:
    """Make `/proc/PID/environ`, `mem`, `maps` and `fd` of this process unreadable; return whether that worked.

    Linux only. It holds for the forked children of this process too, but not for programs that it starts: `exec` undoes
    it. It turns off core dumps and debuggers of the same user. Programs with
    CAP_SYS_PTRACE, CAP_PERFMON or CAP_SYS_ADMIN, as those of root outside of containers, still read it.
    """
    if sys.platform != "linux":
        return False
    return ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0
