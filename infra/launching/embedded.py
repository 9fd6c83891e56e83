"""The child process that is the embedded engine: llama.cpp's own HTTP server inside this process, loopback only.

``python -m infra.launching.embedded --models DIR --port N --parent PID --arguments JSON`` fills
``xllamacpp.CommonParams``, prints one line ``embedded: resolved {...}`` with every engine setting as it stands
(defaults too), starts the server and waits for SIGTERM. It dies with its parent: the kernel sends it SIGKILL when the
thread that started it ends.
It runs in DIR, so that model files are known by name and no local path enters the engine's log or its answers.
"""

import argparse
import ctypes
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from enum import Enum
from typing import Any

RESOLVED_MARK = "embedded: resolved "
PR_SET_PDEATHSIG = 1  # linux/prctl.h


class SettingError(Exception):
    """An engine argument that the engine does not have, or of the wrong type: key, value and what to do."""

    def __init__(self, key: str, value: object, message: str) -> None:
        super().__init__(f"{key} = {value!r}: {message}")
        self.key, self.value = key, value


def fill(params: Any, arguments: Mapping[str, Any]) -> Any:
    """Set each dotted key on ``params`` (xllamacpp.CommonParams) and return it. Errors: SettingError.

    Enumerations are named by their short name, ``q8_0`` for ``GGML_TYPE_Q8_0``; ``-`` and ``_`` are alike in them.
    """
    for key, value in arguments.items():
        *path, last = key.split(".")
        owner = params
        for name in (*path, last):
            if name.startswith("_") or not hasattr(owner, name):
                raise SettingError(key, value, f"the engine has no setting {name!r} here; correct the recipe")
            if name is not last:
                owner = getattr(owner, name)
        wanted = _converted(key, getattr(owner, last), value)
        setattr(owner, last, wanted)
        if getattr(owner, last) != wanted:
            raise SettingError(key, value, f"the engine keeps {getattr(owner, last)!r} instead; correct the recipe")
    return params


def settings(params: Any, prefix: str = "") -> dict[str, Any]:
    """Every setting of ``params`` by its dotted name, as JSON values; long lists of equal items as item and count."""
    flat: dict[str, Any] = {}
    for name in dir(params):
        value = None if name.startswith("_") else getattr(params, name)
        if value is None or callable(value):
            continue
        if type(value).__module__.startswith("xllamacpp") and not isinstance(value, Enum):
            flat.update(settings(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = _plain(value)
    return flat


def _converted(key: str, current: Any, value: Any) -> Any:
    if isinstance(current, Enum):
        return _member(key, type(current), value)
    if isinstance(current, list | set) and isinstance(value, list):
        kinds = {type(item) for item in current}
        if kinds and all(issubclass(kind, Enum) for kind in kinds):
            return [_member(key, kinds.copy().pop(), item) for item in value]
        return type(current)(value)
    if isinstance(current, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not type(current):
        raise SettingError(key, value, f"is {type(value).__name__}, the engine wants {type(current).__name__}")
    return value


def _member(key: str, kind: type[Enum], value: Any) -> Enum:
    prefix = _prefix(kind)
    member = kind.__members__.get(prefix + str(value).replace("-", "_").upper())
    if member is None:
        names = ", ".join(name.removeprefix(prefix).lower() for name in kind.__members__)
        raise SettingError(key, value, f"choose one of: {names}")
    return member


def _prefix(kind: type[Enum]) -> str:
    """What the names of all members begin with, e.g. GGML_TYPE_."""
    names = list(kind.__members__)
    n = 0
    while n < len(names[0]) and all(name[: n + 1] == names[0][: n + 1] for name in names):
        n += 1
    return names[0][:n]


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name.removeprefix(_prefix(type(value))).lower()
    if isinstance(value, set):
        return sorted(_plain(item) for item in value)
    if isinstance(value, list):
        if len(value) > 16 and all(item == value[0] for item in value):
            return {"each_of": len(value), "is": _plain(value[0])}
        return [_plain(item) for item in value]
    return value if isinstance(value, bool | int | float | str | dict) else repr(value)


def die_with(parent: int) -> None:
    """Ask the kernel for SIGKILL at the parent's death; leave at once where it is dead already. Linux only."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        sys.exit("embedded: the launcher is gone")


def wait_for_sigterm() -> None:
    """Sleep until SIGTERM or SIGINT, whichever thread of the engine the kernel hands it to."""
    ours, pythons = socket.socketpair()
    pythons.setblocking(False)
    signal.set_wakeup_fd(pythons.fileno())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    ours.recv(1)


def _say(line: str) -> None:
    """One whole line into the engine's log, before the engine's own threads write there."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m infra.launching.embedded", description=__doc__)
    parser.add_argument("--models", required=True)
    parser.add_argument("--port", required=True, type=int, help="0: the engine takes a free one")
    parser.add_argument("--parent", required=True, type=int)
    parser.add_argument("--arguments", required=True, type=json.loads)
    options = parser.parse_args(argv)
    die_with(options.parent)

    import xllamacpp  # only this process loads the engine

    os.chdir(options.models)
    try:
        params = fill(xllamacpp.CommonParams(), options.arguments)
    except SettingError as error:
        _say(f"embedded: {error}")
        return 2
    params.hostnames = ["127.0.0.1"]
    params.port = options.port
    _say(RESOLVED_MARK + json.dumps(settings(params), sort_keys=True))
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        _say(f"embedded: {error}")
        return 1
    wait_for_sigterm()
    del server  # stops the engine's threads; its last lines are logged
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
