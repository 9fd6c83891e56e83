"""Locust processes without the wait for their imports: one process has imported everything, and forks itself for each.

A Locust spends longer on importing than on a small run. Each fork is a process of its own that runs Locust's ``main``
with its own arguments, environment and output, as ``python -m locust`` would; Locust forks its own ``--processes`` the
same way. The proofs that a server is at rest are taken at a quicker pace.

As a program: one JSON object a line on standard input starts one; what became of it is said on standard output.
"""

import atexit
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REST_INTERVAL_S = 0.05
REST_LIMIT_S = 3.0


class WarmProcess:
    """A started Locust: of ``subprocess.Popen`` what tests use. Its output goes to files and is read at its end."""

    def __init__(self, nursery: "Nursery", pid: int, ended: "Ended", stdout: Path, stderr: Path) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._nursery = nursery
        self._ended = ended
        self._stdout = stdout
        self._stderr = stderr

    def poll(self) -> int | None:
        if self._ended.happened.is_set():
            self.returncode = self._ended.returncode
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        if not self._ended.happened.wait(timeout):
            raise subprocess.TimeoutExpired("locust", timeout or 0.0)
        code = self.poll()
        assert code is not None
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Raises subprocess.TimeoutExpired."""
        self.wait(timeout)
        return self._stdout.read_text(errors="replace"), self._stderr.read_text(errors="replace")

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Ended:
    def __init__(self) -> None:
        self.happened = threading.Event()
        self.returncode: int | None = None


class Nursery:
    """The process that forks, seen from the tests. One for all tests of a session."""

    def __init__(self) -> None:
        self._files = tempfile.TemporaryDirectory(prefix="warm-locust-")
        self._n = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.warm_locust"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._ended: dict[int, Ended] = {}
        self._begun = threading.Condition()
        self._pids: list[int] = []
        threading.Thread(target=self._listen, daemon=True).start()
        atexit.register(self.close)

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], **how: Any) -> WarmProcess:
        """``how``: ``open_files``, a limit; ``stderr``, a path in place of a temporary one; ``patience_s`` with a
        server that does not answer; ``network``, the name of a network namespace."""
        self._n += 1
        stdout = Path(self._files.name) / f"{self._n}.out"
        stderr = Path(how.pop("stderr", Path(self._files.name) / f"{self._n}.err"))
        job = {"arguments": list(arguments), "environment": dict(environment), **how}
        assert self._process.stdin is not None
        with self._begun:
            self._process.stdin.write(json.dumps(job | {"stdout": str(stdout), "stderr": str(stderr)}) + "\n")
            self._process.stdin.flush()
            assert self._begun.wait_for(lambda: self._pids, timeout=60), "the warm Locust does not answer"
            pid = self._pids.pop()
            return WarmProcess(self, pid, self._ended[pid], stdout, stderr)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._files.cleanup()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            with self._begun:
                if "returncode" in said:
                    ended = self._ended.pop(said["pid"])
                    ended.returncode = said["returncode"]
                    ended.happened.set()
                else:
                    self._ended[said["pid"]] = Ended()
                    self._pids.append(said["pid"])
                    self._begun.notify()


_NURSERY: list[Nursery] = []


def start_warm(arguments: Sequence[str], environment: Mapping[str, str], **how: Any) -> WarmProcess:
    """A Locust with these arguments, as ``python -m locust`` with them; the first one waits for the imports."""
    if not _NURSERY:
        _NURSERY.append(Nursery())
    return _NURSERY[0].start(arguments, environment, **how)


def _serve() -> None:
    import gevent.os
    import locust.main  # patches this process: first
    from gevent.monkey import get_original

    import locustfiles._telemetry
    import locustfiles._user

    assert locustfiles._user.LOCUSTFILES  # with it comes everything that a run imports
    locustfiles._telemetry.IDLE_INTERVAL_S = REST_INTERVAL_S
    locustfiles._telemetry.IDLE_LIMIT_S = REST_LIMIT_S
    select, waitpid = get_original("select", "select"), get_original("os", "waitpid")
    alive: set[int] = set()
    waiting = b""
    while True:
        if select([0], [], [], 0.02)[0]:
            more = os.read(0, 1 << 16)
            if not more:
                break
            *jobs, waiting = (waiting + more).split(b"\n")
            for job in map(json.loads, jobs):
                pid = gevent.os.fork_gevent()
                if pid == 0:
                    _become(job)
                    sys.exit(locust.main.main())
                alive.add(pid)
                _say(pid=pid)
        for pid in tuple(alive):
            ended, status = waitpid(pid, os.WNOHANG)
            if ended:
                alive.discard(pid)
                _say(pid=pid, returncode=os.waitstatus_to_exitcode(status))
    for pid in alive:
        os.kill(pid, signal.SIGKILL)


def _become(job: dict[str, Any]) -> None:
    """This fork's own place: session, output, environment, limits, arguments."""
    os.setsid()
    for fd, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, job["stdout"], os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        (2, job["stderr"], os.O_WRONLY | os.O_CREAT | os.O_APPEND),
    ):
        opened = os.open(path, flags, 0o644)
        os.dup2(opened, fd)
        os.close(opened)
    os.environ.clear()
    os.environ.update(job["environment"])
    if "network" in job:
        namespace = os.open(f"/run/netns/{job['network']}", os.O_RDONLY)
        if ctypes.CDLL(None, use_errno=True).setns(namespace, 0):
            raise OSError(ctypes.get_errno(), "setns")
        os.close(namespace)
    if job.get("open_files"):
        resource.setrlimit(resource.RLIMIT_NOFILE, (job["open_files"], job["open_files"]))
    if "patience_s" in job:
        import infra.probe
        import infra.telemetry.scrape

        for asks in (infra.probe.probe, infra.telemetry.scrape.Scraper.__init__):
            assert asks.__kwdefaults__ is not None
            asks.__kwdefaults__["timeout_s"] = job["patience_s"]
    sys.argv = ["locust", *job["arguments"]]


def _say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    _serve()
