"""A fake OpenAI-compatible engine of exactly known schedule, for tests and for measuring the client.

    python -m infra.fake_engine --port 0 --ttft-s 0.05 --gap-s 0.02

prints one JSON line, {"url": ..., "pid": ...}, once it listens, and serves until SIGTERM, until its parent is gone, or,
when its standard input is a pipe, until that is closed. A request may carry its own schedule and fault:

    {"model": "m", "messages": [...], "stream": true, "fake": {"ttft_s": 0.1, "drafted": 3, "accepted": [3, 0]}}

(infra/fake/schedule.py lists the keys), or name a fault (--list-faults) by the model "fake-NAME" or by a last message
that begins with "fake-NAME:". Every chunk carries
``received_ns`` (the whole request read), ``due_ns`` and ``written_ns`` (taken immediately before the send; before the
first piece when an event goes out in several), all on CLOCK_MONOTONIC of this machine. They judge a client; a client
itself must not look at them, since no real server sends them. ``POST /fake/control`` changes
metrics mode, default fault and schedule while it runs.

With ``--processes N`` the system deals connections to N of them, all on one port, each with a core of its own where
``--cpu`` names N. Each counts and is controlled for itself, so metrics are off and control reaches one of them.
"""

import argparse
import contextlib
import gc
import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from infra.fake.counters import MODES, Counters
from infra.fake.faults import FAULTS
from infra.fake.profiler import FakeProfiler
from infra.fake.routes import Engine
from infra.fake.schedule import ScheduleError, read_schedule
from infra.fake.server import Loop

__all__ = ["FAULTS", "MODES", "FakeEngine", "FakeEngineError", "main", "running_fake_engine"]

START_LIMIT_S = 30.0


class FakeEngineError(RuntimeError):
    """The fake engine did not start, or refused a control request."""


class FakeEngine:
    """A running fake engine, seen from its parent."""

    def __init__(self, url: str, process: subprocess.Popen[bytes], api_key: str | None) -> None:
        self.url = url
        self.process = process
        self._api_key = api_key

    def control(self, **wish: Any) -> None:
        """``metrics`` (of MODES), ``restart=True``, ``fault`` (of FAULTS), ``fake`` (a schedule); plain HTTP only."""
        headers = {"Content-Type": "application/json"}
        if self._api_key is not None:
            headers["Authorization"] = f"Bearer {self._api_key}"
        request = urllib.request.Request(f"{self.url}/fake/control", json.dumps(wish).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=5) as response:
                response.read()
        except OSError as error:
            raise FakeEngineError(
                f"control {wish!r} failed: {error}; see --list-faults and --list-metrics-modes"
            ) from error

    def kill(self) -> None:
        """SIGKILL, as when an engine dies."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """SIGTERM, and wait; harmless when it is gone already."""
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.kill()


@contextlib.contextmanager
def running_fake_engine(**options: Any) -> Iterator[FakeEngine]:
    """A fake engine in a process of its own; options are the command line's (``api_key="k"``, ``spin_us=100``).

    ``fake={...}`` gives the default schedule, a list an option of several values. Raises FakeEngineError when it does
    not come up.
    """
    argv = [sys.executable, "-m", "infra.fake_engine"]
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            argv.append(flag)
        elif isinstance(value, list):
            argv += [flag, *map(str, value)]
        elif value is not None and value is not False:
            argv += [flag, json.dumps(value) if isinstance(value, dict) else str(value)]
    root = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": path}
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise FakeEngineError(f"{argv} ended with {process.wait(START_LIMIT_S)}; its standard error says why")
        engine = FakeEngine(json.loads(line)["url"], process, options.get("api_key"))
        yield engine
        engine.stop()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdin.close()
        process.stdout.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 stopped as asked, 2 usage."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.list_faults or args.list_metrics_modes:
        for name, says in (FAULTS if args.list_faults else MODES).items():
            sys.stdout.write(f"{name:22} {says}\n")
        return 0
    defaults = {"ttft_s": args.ttft_s, "gap_s": args.gap_s, "n_tokens": args.n_tokens}
    try:
        fake = {key: value for key, value in defaults.items() if value is not None} | json.loads(args.fake)
        read_schedule(fake)
    except (ScheduleError, ValueError, TypeError) as error:
        parser.error(f"--fake: {error}")
    if args.processes < 1 or (args.processes > 1 and not hasattr(socket, "SO_REUSEPORT")):
        parser.error(f"--processes {args.processes}: give 1, or more where the system shares a port (SO_REUSEPORT)")
    return _serve(args, fake)


def _serve(args: argparse.Namespace, fake: dict[str, Any]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
    tls = None
    if args.certfile:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(args.certfile, args.keyfile)
    listeners = _listeners(args)
    number = _forked(len(listeners))
    listener = listeners.pop(number)
    for another in listeners:
        another.close()
    _be_punctual(args, number)
    engine = Engine(
        counters=Counters(args.metrics if args.processes == 1 else "off", time.monotonic_ns(), args.restart_at),
        defaults=fake,
        fault=args.fault,
        api_key=args.api_key,
        prefix=args.prefix.rstrip("/"),
        model=args.model,
        owner=args.owner,
        n_slots=args.slots,
        profiler=FakeProfiler(source=args.profile_trace, never=args.profile_never),
    )
    loop = Loop(
        engine,
        listener,
        spin_ns=round(args.spin_us * 1000),
        accept_delay_s=args.accept_delay_s,
        tls=tls,
        watched_fd=0 if _is_pipe(0) else None,
    )
    if number == 0:
        url = f"{'https' if tls else 'http'}://{args.host}:{listener.getsockname()[1]}{engine.prefix}"
        sys.stdout.write(json.dumps({"url": url, "pid": os.getpid()}) + "\n")
        sys.stdout.flush()
    loop.serve()  # ends by SystemExit


def _listeners(args: argparse.Namespace) -> list[socket.socket]:
    """One for each process, all on one port."""
    made: list[socket.socket] = []
    port = args.port
    for _ in range(args.processes):
        listener = socket.create_server((args.host, port), backlog=1024, reuse_port=args.processes > 1)
        listener.setblocking(False)
        port = listener.getsockname()[1]
        made.append(listener)
    return made


def _forked(n: int) -> int:
    """Which of ``n`` processes this one is; the others are its forks, and end when the first one has."""
    for number in range(1, n):
        if os.fork() == 0:
            return number
    return 0


def _be_punctual(args: argparse.Namespace, number: int) -> None:
    """No collector pauses, timers without slack (Linux), and what the command line grants."""
    gc.collect()
    gc.freeze()
    gc.disable()
    with contextlib.suppress(OSError):
        Path("/proc/self/timerslack_ns").write_text("1")
    if args.cpu is not None:
        os.sched_setaffinity(0, {args.cpu[number % len(args.cpu)]})
    if args.realtime:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(args.realtime))


def _count(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1")
    return int(text)


def _is_pipe(fd: int) -> bool:
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m infra.fake_engine", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--prefix", default="", help="a path before every route, such as /llm")
    parser.add_argument("--model", default="fake", help="the name /v1/models gives; requests may name any")
    parser.add_argument("--api-key", help="refuse requests without it (401), except /health")
    parser.add_argument("--certfile", help="serve TLS with this certificate")
    parser.add_argument("--keyfile")
    parser.add_argument("--accept-delay-s", type=float, default=0.0, help="take a connection this long after it came")
    parser.add_argument("--ttft-s", type=float)
    parser.add_argument("--gap-s", type=float)
    parser.add_argument("--n-tokens", type=int, help="default: each request's max_tokens")
    parser.add_argument("--slots", type=_count, metavar="N", help="so many answers at once, others wait in turn")
    parser.add_argument("--fake", default="{}", metavar="JSON", help="any part of a schedule, for all requests")
    parser.add_argument("--fault", choices=list(FAULTS), metavar="NAME", help="play this fault on every request")
    parser.add_argument("--metrics", choices=list(MODES), default="ok", metavar="MODE")
    parser.add_argument("--restart-at", type=int, default=2, metavar="N", help="for --metrics restart")
    parser.add_argument("--spin-us", type=float, default=0.0, help="poll this long before each deadline")
    parser.add_argument(
        "--processes", type=int, default=1, metavar="N", help="so many on one port; metrics are off then"
    )
    parser.add_argument("--cpu", type=int, nargs="+", help="run on this core only; of several, each process on one")
    parser.add_argument("--realtime", type=int, default=0, metavar="PRIORITY", help="SCHED_FIFO, where permitted")
    parser.add_argument("--owner", default="llamacpp", help="owned_by of its model; sglang: its /server_info too")
    parser.add_argument("--profile-trace", type=Path, metavar="FILE", help="what a profiler window leaves, .json.gz")
    parser.add_argument("--profile-never", action="store_true", help="as when requests end before a window opens")
    parser.add_argument("--list-faults", action="store_true")
    parser.add_argument("--list-metrics-modes", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
