"""A server that plays an engine from captured bytes: it prints a log, then answers each path with what it was given.

As a program: ``python tests/played_engine.py --script JSON --host H --port P`` (other flags are ignored, as an engine's
own would be). The script: ``log`` (text to print), ``after`` (seconds before it listens), ``routes`` (path to a list of
[status, content type, body], the last repeated), ``end`` (exit code or negative signal, in place of listening),
``child`` (true: leave a child process behind that ignores SIGTERM; its pid is printed).
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Routes = dict[str, list[list[Any]]]


class Played(ThreadingHTTPServer):
    """``asked`` lists method and path of every request, in order."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], routes: Routes) -> None:
        super().__init__(address, Handler)
        self.routes = {path: list(replies) for path, replies in routes.items()}
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://{self.server_address[0]}:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Played
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append(f"{self.command} {self.path}")
        replies = self.server.routes.get(self.path) or self.server.routes.get(self.path.partition("?")[0])
        status, kind, body = [404, "application/json", '{"detail":"Not Found"}'] if not replies else replies[0]
        if replies and len(replies) > 1:
            replies.pop(0)
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_GET

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def playing(routes: Routes) -> Iterator[Played]:
    """The same within this process, on a free port."""
    server = Played(("127.0.0.1", 0), routes)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--script", type=json.loads, required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    options, _ = parser.parse_known_args()
    script = options.script
    if script.get("child"):
        wait = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
        deaf = subprocess.Popen([sys.executable, "-c", wait], stdout=subprocess.PIPE, text=True)
        assert deaf.stdout is not None
        deaf.stdout.readline()
        print("child", deaf.pid, flush=True)
    sys.stdout.write(script.get("log", ""))
    sys.stdout.flush()
    time.sleep(script.get("after", 0.0))
    end = script.get("end")
    if end is not None and end < 0:
        os.kill(os.getpid(), -end)
    if end is not None:
        return int(end)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    Played((options.host, options.port), script.get("routes", {})).serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
