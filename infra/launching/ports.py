"""Ports of this host's loopback: a free one, and whether somebody is there already."""

import fcntl
import os
import socket
import tempfile
from pathlib import Path
from typing import IO

HOST = "127.0.0.1"
# Below the range from which systems take the ports of outgoing connections: an engine may bind minutes after it was
# given its port, and until then a client of anybody could be given the same.
FIRST, N_PORTS = 20_000, 12_000

_held: dict[int, IO[bytes]] = {}  # locks of the ports this process has given out; the system drops them at its end


def free_port() -> int:
    """A port that nobody listens on now, and that no other process of ours on this host has been given.

    Raises OSError where there is none left.
    """
    start = os.getpid() * 37 % N_PORTS
    for step in range(N_PORTS):
        port = FIRST + (start + step) % N_PORTS
        if port not in _held and not port_in_use(port) and _hold(port):
            return port
    raise OSError(f"no port from {FIRST} to {FIRST + N_PORTS - 1} is free: stop a server, or give a port")


def port_in_use(port: int) -> bool:
    """Whether somebody listens there: whatever answered then would not be the engine that is to be started."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return True
    return accepts(port)


def accepts(port: int) -> bool:
    """Whether a connection to the port comes about."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((HOST, port)) == 0


def _hold(port: int) -> bool:
    """Take the port's lock for the length of this process; False where another process has it."""
    path = Path(tempfile.gettempdir()) / f"listen-on-{port}.lock"
    try:
        file = path.open("ab")
    except OSError:
        return True  # somebody else's file, or no place for one: the port itself is free
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return False
    _held[port] = file
    return True
