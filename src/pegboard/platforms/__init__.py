"""platforms: the differences between operating systems, one module each; `platform` is the current one."""

from importlib.util import find_spec

if find_spec("fcntl") is not None:
    from pegboard.platforms import posix as platform
else:  # pragma: no cover - a child process of the tests runs it
    from pegboard.platforms import windows as platform

__all__ = ["platform"]
