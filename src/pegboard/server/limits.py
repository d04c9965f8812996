"""Limits that several modules of `server` share. Those that an operator may change are in `Bounds`."""

BUS_SOCKET_S = 2.0  # for its store to take one
BUS_PING_S = 15.0  # seconds of silence until the store is pinged
BUS_AGAIN_S = 0.5  # before it is connected again
SEALING_KEY_BYTES = 32  # of a key that seals, at least
CHANGES_SETTLE_S = 0.02  # changes within this time are reported as one: a module declares its tools one by one
STREAM_PING_S = 15.0  # a stream silent for this long sends a comment, so that nothing on the way closes it
