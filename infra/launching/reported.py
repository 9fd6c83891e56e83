"""What a running server reports of itself, fetched once after its first answer: the bodies that settings are read from.

A path that does not answer is a reason, not a failure.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from infra.fetch import fetch
from infra.launching.engine_log import EngineLog
from infra.launching.resolved_readers import Resolved, read_llamacpp, read_sglang, read_vllm
from infra.wire.exposition import METRICS_ACCEPT, Exposition, ExpositionError, parse

# Paths in the order they are tried, by the name under which the first that answers is kept.
_PATHS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "sglang": {"server_info": ("/server_info", "/get_server_info")},
    "vllm": {"server_info": ("/server_info?config_format=json",), "version": ("/version",)},
    "llama.cpp": {"props": ("/props",), "slots": ("/slots",)},
    "other": {},
}


@dataclass(frozen=True, kw_only=True)
class Reported:
    """``bodies`` are parsed JSON by name; ``metrics`` is None where there is none to read; ``lacks`` says why."""

    engine: str
    bodies: Mapping[str, Any]
    metrics: Exposition | None
    lacks: Mapping[str, str] = field(default_factory=dict)


def fetch_reported(engine: str, url: str, timeout_s: float, headers: Mapping[str, str]) -> Reported:
    """Ask every path of the engine once. Raises nothing for what a server does."""
    bodies: dict[str, Any] = {}
    lacks: dict[str, str] = {}
    for name, paths in _PATHS[engine].items():
        for path in paths:
            got = fetch(url + path, timeout_s=timeout_s, headers={"Accept": "application/json", **headers})
            try:
                bodies[name] = read_body(got.body) if got.error is None else None
            except (ValueError, RecursionError):
                bodies[name] = None
            if bodies[name] is not None:
                lacks.pop(name, None)
                break
            lacks[name] = f"{path}: {got.error or 'no JSON'}"
    metrics, why = fetch_metrics(url, timeout_s, headers)
    if why is not None:
        lacks["metrics"] = why
    return Reported(engine=engine, bodies=bodies, metrics=metrics, lacks=lacks)


def read_body(body: bytes | None) -> Any:
    """JSON as evidence can hold it: NaN and the infinities, which are none, as words. Raises ValueError."""
    return json.loads(body or b"", parse_constant=str)


def fetch_metrics(url: str, timeout_s: float, headers: Mapping[str, str]) -> tuple[Exposition | None, str | None]:
    """``/metrics`` as read, or why there is none."""
    got = fetch(f"{url}/metrics", timeout_s=timeout_s, headers={"Accept": METRICS_ACCEPT, **headers})
    if got.error is not None or not got.complete:
        return None, f"/metrics: {got.error or 'torn'}"
    content_type = next((value for key, value in got.headers.items() if key.lower() == "content-type"), None)
    try:
        return parse(got.body or b"", content_type), None
    except ExpositionError as error:
        return None, f"/metrics: {error}"


def resolve(reported: Reported, log: EngineLog | None, asked: Mapping[str, Any] | None) -> Resolved:
    """The server's settings, from its answers, its log where it is ours, and the command line it was given."""
    config_lines = log.config_lines if log else ()
    if reported.engine == "sglang":
        return read_sglang(reported.bodies.get("server_info"), config_lines)
    if reported.engine == "vllm":
        said = reported.bodies.get("version")
        version = said.get("version") if isinstance(said, Mapping) else None
        return read_vllm(
            reported.bodies.get("server_info"),
            version if isinstance(version, str) else None,
            reported.metrics,
            config_lines,
        )
    if reported.engine == "llama.cpp":
        lines = log.setting_lines if log else ()
        return read_llamacpp(reported.bodies.get("props"), reported.bodies.get("slots"), lines, asked)
    return Resolved(
        engine=reported.engine,
        version=None,
        sources=("command line",) if asked else (),
        settings={f"asked.{key}": value for key, value in (asked or {}).items()},
        outcomes={},
        lacks=("nothing is known of what this engine reports",),
    )
