"""What a running server is, from what its endpoints answered: judged on bodies and headers alone.

Three kinds of witness: the ``Server`` header, ``owned_by`` of ``/v1/models``, and the prefix of the metric series.
When they disagree (a proxy, two servers) the engine is unknown, and the reason names both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from infra.engines.adapter import adapter_for
from infra.engines.answers import Answer as Answer
from infra.engines.answers import resolved_info
from infra.engines.fronts import Front, front
from infra.engines.offers import Known, Lack, evidence
from infra.engines.speculating import speculation
from infra.wire.exposition import Exposition, ExpositionError, parse

Engine = Literal["llama.cpp", "vllm", "sglang", "tensorrt-llm", "unknown"]

# Name of an answer -> path below the base URL.
PATHS: Mapping[str, str] = {
    "models": "/v1/models",
    "props": "/props",
    "slots": "/slots",
    "version": "/version",
    "server_info": "/server_info",
    "metrics": "/metrics",
}
# Asked only where the first answers leave a question open.
MORE_PATHS: Mapping[str, str] = {
    "server_info_old": "/get_server_info",
    "trtllm_metrics": "/prometheus/metrics",
    "workers": "/workers",
}
_SERIES: tuple[tuple[str, Engine], ...] = (
    ("llamacpp:", "llama.cpp"),
    ("vllm:", "vllm"),
    ("sglang:", "sglang"),
    ("trtllm_", "tensorrt-llm"),
)
_OWNERS: Mapping[str, Engine] = {
    "llamacpp": "llama.cpp",
    "vllm": "vllm",
    "sglang": "sglang",
    "tensorrt_llm": "tensorrt-llm",
}
_RAY_SERIES: Mapping[str, str] = {"ray_vllm": "vLLM", "ray_sglang": "SGLang"}


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineFacts:
    """``adapter`` names the reader of its series (None: none yet). ``why_*`` stand where the value is None."""

    engine: Engine
    why_engine: str  # the witnesses, or why it is unknown
    version: str | None
    why_version: str | None
    adapter: str | None
    models: tuple[str, ...]
    model_meta: Mapping[str, Any]  # the first model's entry, as sent
    speculative: bool | None
    why_speculative: str  # what says so, or why it is not known
    speculative_mode: str | None  # the engine's own word, e.g. "draft-simple"
    metric_types: Mapping[str, str]
    offers: tuple[str, ...]
    lacks: tuple[str, ...]  # each with what would supply it
    missing: tuple[Lack, ...] = ()  # the same, in parts
    front: Front | None = None  # what stands before the engine, if anything shows
    metrics_at: str = "/metrics"  # where this engine's exposition is


def request_extras(engine: Engine, *, cold_per_request: bool, version: str | None = None) -> dict[str, Any]:
    """Body fields that make this engine send evidence: usage at the end, a token count in each chunk, details."""
    adapter = adapter_for(engine, version)
    if adapter is None:
        return {"stream_options": {"include_usage": True}}
    return adapter.request_extras(cold_per_request=cold_per_request)


def identify(answers: Mapping[str, Answer], *, host: str = "") -> EngineFacts:
    """Judge the answers of PATHS and MORE_PATHS (a missing one counts as not asked); ``host`` is the base URL."""
    metrics, why_no_metrics = _exposition(answers, "metrics")
    elsewhere, _ = _exposition(answers, "trtllm_metrics")
    at = "/metrics"
    if elsewhere is not None and any(name.startswith("trtllm_") for name in elsewhere.names()):
        at = "/prometheus/metrics"
        why_no_metrics = why_no_metrics or "a list of iteration statistics that each read empties"
        why_no_metrics += f": its exposition is at {at}"
    engine, why_engine = _engine(answers, metrics or elsewhere)
    version, why_version = _version(engine, answers)
    speculative, why_speculative, mode = speculation(engine, answers, metrics or elsewhere)
    models = _models(answers)
    readable = metrics is not None and any(_counts(metrics, prefix) for prefix, of in _SERIES if of == engine)
    if metrics is not None and not readable:
        why_no_metrics = _foreign(metrics)
    offers, missing = evidence(
        Known(
            engine=engine,
            version=version,
            models=len(models),
            speculative=speculative,
            why_speculative=why_speculative,
            metrics=readable,
            why_no_metrics=why_no_metrics,
            info=resolved_info(answers),
        )
    )
    return EngineFacts(
        engine=engine,
        why_engine=why_engine,
        version=version,
        why_version=why_version,
        adapter=engine if readable else None,
        models=tuple(str(m["id"]) for m in models),
        model_meta=models[0] if models else {},
        speculative=speculative,
        why_speculative=why_speculative,
        speculative_mode=mode,
        metric_types=dict(metrics.types) if metrics else {},
        offers=offers,
        lacks=tuple(str(lack) for lack in missing),
        missing=missing,
        front=_front(answers, models, metrics, host, engine),
        metrics_at=at,
    )


def _front(
    answers: Mapping[str, Answer],
    models: list[Mapping[str, Any]],
    metrics: Exposition | None,
    host: str,
    engine: Engine,
) -> Front | None:
    workers = answers.get("workers")
    return front(
        names=metrics.names() if metrics else (),
        owners=[str(m["owned_by"]) for m in models if isinstance(m.get("owned_by"), str)],
        headers=[answer.headers for answer in answers.values() if answer.status is not None],
        host=host,
        engine=engine,
        workers=workers.json() if workers else None,
    )


def _foreign(metrics: Exposition) -> str:
    """Why a readable exposition is not read: whose series it holds instead."""
    names = sorted(metrics.names())
    for prefix, engine in _RAY_SERIES.items():
        if any(name.startswith(prefix) for name in names):
            return f"Ray exports {engine}'s series under names of its own ({prefix}_*), with other observations"
    return f"no series of an engine known here, but {', '.join(names[:3])}"


def _exposition(answers: Mapping[str, Answer], name: str) -> tuple[Exposition | None, str | None]:
    answer = answers.get(name)
    if answer is None:
        return None, "not asked"
    if answer.status != 200 or answer.body is None:
        return None, answer.seen
    try:
        return parse(answer.body, answer.header("content-type")), None
    except ExpositionError as error:
        return None, str(error)


def _models(answers: Mapping[str, Answer]) -> list[Mapping[str, Any]]:
    answer = answers.get("models")
    said = answer.json() if answer else None
    entries = said.get("data") if isinstance(said, Mapping) else None
    if not isinstance(entries, list):
        return []
    return [e for e in entries if isinstance(e, Mapping) and isinstance(e.get("id"), str)]


def _engine(answers: Mapping[str, Answer], metrics: Exposition | None) -> tuple[Engine, str]:
    votes: dict[str, Engine] = {}
    for name, answer in answers.items():
        if (answer.header("server") or "").lower().startswith("llama.cpp"):
            votes.setdefault(f"Server: {answer.header('server')} ({PATHS.get(name, name)})", "llama.cpp")
            break
    for model in _models(answers):
        owner = model.get("owned_by")
        if isinstance(owner, str) and owner in _OWNERS:
            votes.setdefault(f'owned_by "{owner}"', _OWNERS[owner])
    for prefix, engine in _SERIES:
        if metrics is not None and _counts(metrics, prefix):
            votes[f"series {prefix}*"] = engine
    named = set(votes.values())
    shown = ", ".join(f"{witness} says {engine}" for witness, engine in votes.items())
    if len(named) == 1:
        return named.pop(), shown
    if named:
        return "unknown", f"the witnesses disagree: {shown}"
    return "unknown", "no Server header, owned_by or series of an engine known here"


def _counts(metrics: Exposition, prefix: str) -> bool:
    """Series of an engine's, not a router's gauges that borrow its prefix and name a ``server``."""
    return any(s.name.startswith(prefix) and "server" not in s.labels for s in metrics.samples)


def _version(engine: Engine, answers: Mapping[str, Answer]) -> tuple[str | None, str | None]:
    where, field = {
        "llama.cpp": ("props", "build_info"),
        "sglang": ("server_info", "version"),
    }.get(engine, ("version", "version"))
    answer = answers.get(where)
    said: Any = resolved_info(answers) if engine == "sglang" else answer.json() if answer else None
    version = said.get(field) if isinstance(said, Mapping) else None
    path = PATHS[where]
    if not isinstance(version, str) or not version:
        return None, f"{path} does not say ({answer.seen if answer and said is None else 'no such field'})"
    if version.endswith("-unknown"):
        return None, f"{path} says {version!r}, which names no build: give the package's version"
    return version, None
