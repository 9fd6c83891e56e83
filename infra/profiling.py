"""A bounded profiler window of SGLang or vLLM, and the traces it leaves.

SGLang (0.5.17 to 0.5.23) takes the number of steps and the folder with ``POST /start_profile``, answers at once and
ends by itself: it writes ``<id>-TP-<rank>.trace.json.gz`` once so many steps ran after it. A window opened after the
last request has ended answers 200 and never writes anything. vLLM writes to the folder it was started with
(``--profiler-config``; without one the route is not there), ends after ``max_iterations`` where its version knows that,
and in any case at ``POST /stop_profile``, whose reply may wait for the files.

A server that was profiled is slower afterwards: its launch is never timed.
"""

import json
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.dial import DialError, exchange
from infra.target import Target
from infra.wire.http1 import read_response

PROFILED_ENGINES = ("sglang", "vllm")
_KEPT_REPLY = 2000
_LOOK_EVERY_S = 0.2
_UNCHANGED_S = 1.0  # a trace that has not grown for so long has been written
_READ_WHOLE_UP_TO_BYTES = 256 << 20  # a larger trace is not unpacked only to see that it ends well
_BLOCK_BYTES = 1 << 20
_FOLDER_KEYS = ("profiler_config.torch_profiler_dir", "asked.profiler-config.torch_profiler_dir")
_RANK_KEYS = (("tp_size", "tensor_parallel_size"), ("pp_size", "pipeline_parallel_size"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One call to a profiler's route and what came; ``fault`` says why nothing whole came."""

    path: str
    body: Mapping[str, Any] | None
    status: int | None
    reply: str
    fault: str | None
    asked_at_unix_s: float
    answered_at_unix_s: float

    @property
    def done(self) -> bool:
        return self.status == 200

    def record(self) -> dict[str, Any]:
        """As JSON, for evidence."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """A trace that appeared; ``whole``: its compression ends as it should, None where that was not looked at."""

    path: Path
    whole: bool | None


def writes_to(engine: str, settings: Mapping[str, Any], wanted: Path) -> Path | None:
    """The folder a window's traces land in: the one asked for, or the one the server was started with; None: not known.

    ``settings`` as resolved, by dotted name.
    """
    if engine == "sglang":
        return wanted
    found = next((settings[key] for key in _FOLDER_KEYS if isinstance(settings.get(key), str)), None)
    return None if found is None else Path(found)


def n_ranks(settings: Mapping[str, Any]) -> int | None:
    """How many traces one window leaves, by the resolved settings; None where they do not say."""
    n = None
    for names in _RANK_KEYS:
        size = next((settings[name] for name in names if type(settings.get(name)) is int), None)
        if size is not None:
            n = (n or 1) * size
    return n


def start_profile(
    engine: str, url: str, *, steps: int, folder: Path | None, headers: Sequence[tuple[str, str]], timeout_s: float
) -> Asked:
    """Open a window of ``steps``. Raises nothing for what a server does."""
    body: dict[str, Any] = {"max_iterations": steps}
    if engine == "sglang":
        body = {"num_steps": steps, "activities": ["CPU", "GPU"], "output_dir": str(folder)}
    return _post(url, "/start_profile", body, headers, timeout_s)


def stop_profile(url: str, *, headers: Sequence[tuple[str, str]], timeout_s: float) -> Asked:
    """Close a window that does not end by itself."""
    return _post(url, "/stop_profile", None, headers, timeout_s)


def refusal_of(engine: str, asked: Asked) -> str:
    """Why a profiler was not started, in words that end with what to do."""
    if asked.fault is not None:
        return f"POST {asked.path}: {asked.fault}"
    said = f"POST {asked.path}: HTTP {asked.status}: {asked.reply.strip()[:200]}"
    if asked.status == 404 and engine == "vllm":
        return f"{said}; start the server with --profiler-config naming torch_profiler_dir"
    if asked.status in (401, 403):
        return f"{said}; give the key in OPENAI_API_KEY"
    return f"{said}; read the server's log"


def traces_in(folder: Path) -> dict[Path, int]:
    """Every trace in a folder with its size; empty where there is none."""
    found = {}
    for path in folder.rglob("*") if folder.is_dir() else ():
        if path.is_file() and path.name.endswith((".json", ".json.gz")):
            found[path] = path.stat().st_size
    return found


def wait_for_traces(
    folder: Path,
    before: Mapping[Path, int],
    *,
    n_expected: int | None,
    within_s: float,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[Written, ...]:
    """What appears in ``folder`` beside ``before`` and has stopped growing; () when nothing has within the time.

    With ``n_expected`` None, whatever has not grown for a second is all there is.
    """
    deadline, sizes, since = time.monotonic() + within_s, dict[Path, int](), time.monotonic()
    while True:
        now = {path: size for path, size in traces_in(folder).items() if before.get(path) != size}
        if now != sizes:
            sizes, since = now, time.monotonic()
        enough = bool(sizes) and (n_expected is None or len(sizes) >= n_expected)
        late = time.monotonic() > deadline
        if (enough and time.monotonic() - since >= _UNCHANGED_S) or late:
            found = tuple(Written(path=path, whole=ends_well(path, sleep)) for path in sorted(sizes))
            if late or all(one.whole is not False for one in found):
                return found
        sleep(_LOOK_EVERY_S)


def ends_well(path: Path, sleep: Callable[[float], None] = time.sleep) -> bool | None:
    """Whether a trace is there to its end; None where it is too large to look, or cannot be read."""
    try:
        if path.stat().st_size > _READ_WHOLE_UP_TO_BYTES:
            return None
        with path.open("rb") as file:
            if path.suffix != ".gz":
                file.seek(max(path.stat().st_size - 64, 0))
                return file.read().rstrip().endswith((b"}", b"]"))
            unpack = zlib.decompressobj(wbits=31)
            while block := file.read(_BLOCK_BYTES):
                unpack.decompress(block)
                sleep(0)
            return unpack.eof
    except (OSError, zlib.error) as error:
        return False if isinstance(error, zlib.error) else None


def _post(
    url: str, path: str, body: Mapping[str, Any] | None, headers: Sequence[tuple[str, str]], timeout_s: float
) -> Asked:
    target = Target.parse(url)
    data = b"" if body is None else json.dumps(body).encode()
    typed = [*([("Content-Type", "application/json")] if body is not None else []), *headers]
    asked_at_unix_s = time.time()
    status, reply, fault = None, "", None
    try:
        segments, ended, _ = exchange(target, target.request("POST", path, typed, data), timeout_s)
    except DialError as error:
        fault = str(error)
    else:
        response = read_response((segment.data for segment in segments), method="POST")
        reply = response.body.decode("utf-8", "replace")[:_KEPT_REPLY]
        if response.head is None or response.complete is False:
            fault = f"no whole answer ({ended}); look at the server"
        else:
            status = response.head.status
    return Asked(
        path=path,
        body=body,
        status=status,
        reply=reply,
        fault=fault,
        asked_at_unix_s=asked_at_unix_s,
        answered_at_unix_s=time.time(),
    )
