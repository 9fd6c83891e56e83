"""The port between a master and its workers: a run's own wherever nobody has to type it.

Locust's default is 5557 for every run, and a worker that outlives its master joins the next master on that port. With
``--processes`` both ends are started by one command, so it can have a free port of its own, on loopback only.
"""

import os
import socket
from collections.abc import Sequence

from locust.argument_parser import LocustArgumentParser

LOOPBACK = "127.0.0.1"


def free_port(host: str = LOOPBACK) -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def choose_defaults(parser: LocustArgumentParser, arguments: Sequence[str]) -> None:
    """New defaults of Locust's own options where one command starts master and workers; what is typed still counts."""
    if not (_given(arguments, "--processes") or os.environ.get("LOCUST_PROCESSES")) or _given(arguments, "--worker"):
        return
    port: int | str = free_port()
    typed = _value(arguments, "--master-bind-port") or os.environ.get("LOCUST_MASTER_BIND_PORT")
    if typed:
        port = typed  # the workers follow; what is no number is Locust's to refuse
    parser.set_defaults(master_bind_host=LOOPBACK, master_host=LOOPBACK, master_bind_port=port, master_port=port)


def _given(arguments: Sequence[str], option: str) -> bool:
    return any(one == option or one.startswith(f"{option}=") for one in arguments)


def _value(arguments: Sequence[str], option: str) -> str | None:
    for place, one in enumerate(arguments):
        if one.startswith(f"{option}="):
            return one.partition("=")[2]
        if one == option and place + 1 < len(arguments):
            return arguments[place + 1]
    return None
