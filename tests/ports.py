"""Ports: numbers that nothing else on this machine takes between being drawn and being used.

A number that the system gives (`bind` to port 0) may be given again as soon as the probe is closed: to a test in
another process, or as the local port of any outgoing connection. The numbers here lie below the range that systems use
for outgoing connections, and no two processes draw from the same block: each holds the UDP port at the head of its
block until it ends.
"""

import random
import socket
from collections.abc import Iterator
from contextlib import suppress

FIRST, END, BLOCK = 15_000, 30_000, 50


def _numbers() -> Iterator[int]:
    heads = list(range(FIRST, END, BLOCK))
    random.SystemRandom().shuffle(heads)
    for head in heads:
        with suppress(OSError), socket.socket(type=socket.SOCK_DGRAM) as held:
            held.bind(("127.0.0.1", head))
            for port in range(head + 1, head + BLOCK):
                with suppress(OSError), socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
                    probe.close()
                    yield port
            # The numbers of this block may still be in use: it is held until the process ends.
            held.detach()


_drawn = _numbers()


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nobody listens on, and that no other call of this function returns."""
    return next(_drawn)
