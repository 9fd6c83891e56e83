"""The real Prometheus on loopback, in a scratch folder, for as long as a test needs it."""

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MISSING = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
needs_prometheus = pytest.mark.skipif(
    bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (Debian: apt-get install prometheus)"
)
READY_WITHIN_S = 30.0


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False, timeout=60)


def backfill(text: Path, data: Path) -> None:
    """Blocks from an OpenMetrics file, by the real promtool."""
    done = promtool("tsdb", "create-blocks-from", "openmetrics", str(text), str(data))
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def running_prometheus(data: Path, config: Path | None = None) -> Iterator[str]:
    """Its URL, once it is ready. Without a configuration it scrapes nothing."""
    if config is None:
        config = data.parent / f"{data.name}.yml"
        config.write_text("scrape_configs: []\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url, log = f"http://127.0.0.1:{port}", data.parent / f"{data.name}.log"
    argv = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={data}"]
    argv += ["--storage.tsdb.retention.time=10y", f"--web.listen-address=127.0.0.1:{port}"]
    with log.open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT)
    try:
        give_up_s = time.monotonic() + READY_WITHIN_S
        while not _ready(url):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < give_up_s, log.read_text()
            time.sleep(0.05)
        yield url
    finally:
        process.kill()
        process.wait()


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False


def ask(url: str, path: str, **params: Any) -> list[dict[str, Any]]:
    """The result of an API call, which must have succeeded."""
    try:
        with urllib.request.urlopen(f"{url}/api/v1/{path}?{urllib.parse.urlencode(params)}", timeout=10) as answer:
            said = json.load(answer)
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{params}: {error.read().decode()}") from error
    assert said["status"] == "success", said
    return said["data"]["result"]
