"""The process in which code of unknown quality is run: ``limited_run.py`` starts it as ``python -I -S`` with this file.

Standard library only: this file is a script of its own, never imported. One JSON job comes on standard input:

    {"code": TEXT, "function": NAME, "args": [[...], ...], "cpu_s": N, "memory_bytes": N}

and JSON lines go back, each at once: first {"guards": [...], "lacking": [...]} or {"refused": WHY}, then one line for
each call in turn, {"result": JSON} or {"error": TEXT}. What the code prints goes nowhere.

Guards, strongest first:
    a system call filter (seccomp; Linux on x86-64 and arm64): only calls on a short list go through, so that the code
    can read files but not write, start, signal or connect to anything;
    a user and network name space of its own (``unshare``; Linux, where it is permitted);
    Python's audit hook, which refuses the same deeds by name: no mistake gets past it, though a determined program may;
    limits on processor time, address space, processes, file size and open files.
"""

import ctypes
import itertools
import json
import os
import platform
import resource
import signal
import struct
import sys
import types
from collections.abc import Callable
from typing import Any

MAX_ITEMS = 100_000  # of an iterator that a call returns
_NEW_USER, _NEW_NET, _NEW_IPC = 0x10000000, 0x40000000, 0x08000000
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

# By machine: its AUDIT_ARCH value; the calls that open a file, each with the place of its flags in the arguments, let
# through for reading only; and the calls let through: read, write, seek, stat, memory, signal handlers, waiting, time,
# identity, randomness, exit. None of them makes a process, a socket or a file, or signals another process.
_CALLS = {
    "x86_64": (
        0xC000003E,
        ((2, 1), (257, 2)),
        "0 1 3 4 5 6 7 8 9 10 11 12 13 14 15 17 19 20 21 23 24 25 28 35 39 60 63 79 89 96 98 99 100 102 104 107 108 110"
        " 131 186 202 204 217 228 229 230 231 262 267 269 270 271 273 309 318 332 334 439",
    ),
    "aarch64": (
        0xC00000B7,
        ((56, 2),),
        "17 48 57 61 62 63 64 65 66 67 72 73 78 79 80 93 94 98 99 101 113 114 115 123 124 132 134 135 139 160 165 169"
        " 172 173 174 175 176 177 178 179 214 215 216 222 226 233 278 291 293 439",
    ),
}

_REFUSED_EVENTS = (
    *("ctypes.", "socket.", "subprocess.", "shutil.", "tempfile.", "os.exec", "os.fork", "os.posix_spawn", "os.spawn"),
    *(
        "os.system",
        "os.startfile",
        "os.kill",
        "os.remove",
        "os.rename",
        "os.rmdir",
        "os.mkdir",
        "os.truncate",
        "os.chmod",
    ),
    *(
        "os.chown",
        "os.link",
        "os.symlink",
        "os.utime",
        "os.setxattr",
        "os.removexattr",
        "pty.spawn",
        "sqlite3.",
        "mmap.",
    ),
    *("resource.", "webbrowser.", "signal.pthread_kill", "syslog.", "dbm."),
)


def main() -> None:
    """Runs the job on standard input and ends the process."""
    job = json.loads(sys.stdin.buffer.read())
    results = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    was_root = os.geteuid() == 0
    guards, lacking = _confine(job)
    if was_root and "system calls filtered" not in guards:
        _send(results, {"refused": "as the superuser the number of processes cannot be limited; run as another user"})
        os._exit(0)
    _send(results, {"guards": guards, "lacking": lacking})
    function, error = _load(job["code"], job["function"])
    for args in job["args"]:
        _send(results, _called(function, args) if function is not None else {"error": error})
    os._exit(0)


def _confine(job: dict[str, Any]) -> tuple[list[str], list[str]]:
    guards: list[str] = []
    lacking: list[str] = []
    libc = ctypes.CDLL(None, use_errno=True)
    limits = [
        ("CPU", job["cpu_s"]),
        ("AS", job["memory_bytes"]),
        ("FSIZE", 0),
        ("CORE", 0),
        ("NOFILE", 64),
        ("NPROC", 1),
    ]
    for name, value in limits:
        try:
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
        except (OSError, ValueError):
            lacking.append(f"limit {name}")
    linux = sys.platform == "linux"
    if linux:
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    own_space = linux and libc.unshare(_NEW_USER | _NEW_NET | _NEW_IPC) == 0
    filtered = linux and _filter_calls(libc)
    (guards if filtered else lacking).append("system calls filtered")
    if own_space:
        guards.append("own network name space")
    elif not filtered:  # the filter alone shuts the network off as well
        lacking.append("own network name space")
    sys.addaudithook(_audit(_REFUSED_EVENTS, _WRITE_FLAGS))
    guards.append("audit hook")
    return guards, lacking


def _filter_calls(libc: ctypes.CDLL) -> bool:
    known = _CALLS.get(platform.machine())
    if known is None:
        return False
    arch, openers, allowed = known
    load, equal, at_least, any_bit, give = 0x20, 0x15, 0x35, 0x45, 0x06
    kill, refuse, allow = 0x80000000, 0x00050000 | 1, 0x7FFF0000  # refuse: the call fails with EPERM
    program = [
        (load, 0, 0, 4),
        (equal, 1, 0, arch),
        (give, 0, 0, kill),
        (load, 0, 0, 0),
        (at_least, 0, 1, 0x40000000),  # the x32 numbers of x86-64
        (give, 0, 0, refuse),
    ]
    for number, place in openers:
        program += [
            (equal, 0, 4, number),
            (load, 0, 0, 16 + 8 * place),  # the low word: both machines are little-endian
            (any_bit, 0, 1, _WRITE_FLAGS),
            (give, 0, 0, refuse),
            (give, 0, 0, allow),
        ]
    for word in allowed.split():
        program += [(equal, 0, 1, int(word)), (give, 0, 0, allow)]
    program.append((give, 0, 0, refuse))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    header = ctypes.create_string_buffer(struct.pack("HP", len(program), ctypes.addressof(code)))
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    return bool(libc.prctl(_PR_SET_SECCOMP, 2, header, 0, 0) == 0)


def _audit(refused: tuple[str, ...], write_flags: int) -> Callable[[str, tuple[Any, ...]], None]:
    def hook(event: str, args: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(args[2], int) and args[2] & write_flags
        if writes or event.startswith(refused):
            raise PermissionError(f"{event} is not allowed here")

    return hook


def _load(code: str, name: str) -> tuple[Any, str]:
    module = types.ModuleType("answer")
    sys.modules["answer"] = module
    try:
        exec(compile(code, "answer.py", "exec", dont_inherit=True), module.__dict__)
        return module.__dict__[name], ""
    except BaseException as error:  # noqa: BLE001 - whatever the code raises, SystemExit too, is its result
        return None, f"the code fails when it is loaded: {_named(error)}"


def _called(function: Any, args: list[Any]) -> dict[str, Any]:
    try:
        value = function(*args)
        if hasattr(value, "__next__"):
            value = list(itertools.islice(value, MAX_ITEMS))
        return {"result": json.loads(json.dumps(value, allow_nan=False))}
    except BaseException as error:  # noqa: BLE001 - whatever the code raises, SystemExit too, is its result
        return {"error": _named(error)}


def _named(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:200]
    except BaseException:  # noqa: BLE001 - even its text may be hostile
        return "an exception that cannot be shown"


def _send(descriptor: int, line: dict[str, Any]) -> None:
    data = json.dumps(line).encode("ascii") + b"\n"
    while data:
        data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    main()
