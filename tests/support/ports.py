"""Free loopback ports for servers."""

from __future__ import annotations

import random
import socket

# Below the range from which kernels take the source ports of outgoing connections. Inside that
# range a client that keeps dialling a stopped server sooner or later gets the server's own port
# as its source, connects to itself, and keeps the server from starting again.
_RANGE = range(20_000, 30_000)


def free_port() -> int:
    # Not from the seeded generator that a test plugin may control: parallel runs must differ.
    for port in random.SystemRandom().sample(_RANGE, 200):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port")
