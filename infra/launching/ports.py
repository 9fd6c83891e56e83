"""Ports of this host's loopback: a free one, and whether somebody is there already."""

import socket

HOST = "127.0.0.1"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        port: int = taken.getsockname()[1]
        return port


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
