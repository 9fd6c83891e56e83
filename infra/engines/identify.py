"""What a running server is, from what its endpoints answered: judged on bodies and headers alone.

Three kinds of witness: the ``Server`` header, ``owned_by`` of ``/v1/models``, and the prefix of the metric series.
When they disagree (a proxy, two servers) the engine is unknown, and the reason names both.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from infra.engines import llamacpp, llamacpp_request
from infra.wire.exposition import Exposition, ExpositionError, parse

Engine = Literal["llama.cpp", "vllm", "sglang", "unknown"]

# Name of an answer -> path below the base URL.
PATHS: Mapping[str, str] = {
    "models": "/v1/models",
    "props": "/props",
    "slots": "/slots",
    "version": "/version",
    "server_info": "/server_info",
    "metrics": "/metrics",
}
_SERIES: tuple[tuple[str, Engine], ...] = (
    ("llamacpp:", "llama.cpp"),
    ("vllm:", "vllm"),
    ("sglang:", "sglang"),
)
_OWNERS: Mapping[str, Engine] = {"llamacpp": "llama.cpp", "vllm": "vllm", "sglang": "sglang"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What one endpoint said. ``status`` is None when nothing answered, and ``error`` then says why."""

    status: int | None
    headers: Mapping[str, str]
    body: bytes | None
    error: str | None = None

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers.items() if key.lower() == name), None)

    def json(self) -> Any:
        """The body as JSON when the status is 200 and it is JSON; else None."""
        if self.status != 200 or self.body is None:
            return None
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    @property
    def seen(self) -> str:
        """For a sentence: what came in place of the answer looked for."""
        return self.error or (f"HTTP {self.status}" if self.status != 200 else "an answer that cannot be read")


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
    lacks: tuple[str, ...]


def request_extras(engine: Engine, *, cold_per_request: bool) -> dict[str, Any]:
    """Body fields that make this engine send evidence: usage at the end, and a token count in each chunk if it can."""
    if engine == "llama.cpp":
        return llamacpp_request.request_extras(cold_per_request=cold_per_request)
    if engine in ("vllm", "sglang"):
        return {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    return {"stream_options": {"include_usage": True}}


def identify(answers: Mapping[str, Answer]) -> EngineFacts:
    """Judge the answers of PATHS (a missing one counts as not asked)."""
    metrics, why_no_metrics = _exposition(answers)
    engine, why_engine = _engine(answers, metrics)
    version, why_version = _version(engine, answers)
    speculative, why_speculative, mode = _speculation(engine, answers, metrics)
    models = _models(answers)
    adapter = llamacpp.ENGINE if engine == "llama.cpp" and metrics is not None else None
    offers, lacks = _evidence(engine, adapter, models, why_no_metrics, speculative)
    return EngineFacts(
        engine=engine,
        why_engine=why_engine,
        version=version,
        why_version=why_version,
        adapter=adapter,
        models=tuple(str(m["id"]) for m in models),
        model_meta=models[0] if models else {},
        speculative=speculative,
        why_speculative=why_speculative,
        speculative_mode=mode,
        metric_types=dict(metrics.types) if metrics else {},
        offers=offers,
        lacks=lacks,
    )


def _exposition(answers: Mapping[str, Answer]) -> tuple[Exposition | None, str | None]:
    answer = answers.get("metrics")
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
        if metrics is not None and any(name.startswith(prefix) for name in metrics.names()):
            votes[f"series {prefix}*"] = engine
    named = set(votes.values())
    shown = ", ".join(f"{witness} says {engine}" for witness, engine in votes.items())
    if len(named) == 1:
        return named.pop(), shown
    if named:
        return "unknown", f"the witnesses disagree: {shown}"
    return "unknown", "no Server header, owned_by or series of an engine known here"


def _version(engine: Engine, answers: Mapping[str, Answer]) -> tuple[str | None, str | None]:
    where, field = {
        "llama.cpp": ("props", "build_info"),
        "sglang": ("server_info", "version"),
    }.get(engine, ("version", "version"))
    answer = answers.get(where)
    said = answer.json() if answer else None
    version = said.get(field) if isinstance(said, Mapping) else None
    path = PATHS[where]
    if not isinstance(version, str) or not version:
        return None, f"{path} does not say ({answer.seen if answer and said is None else 'no such field'})"
    if version.endswith("-unknown"):
        return None, f"{path} says {version!r}, which names no build: give the package's version"
    return version, None


_Speculation = tuple[bool | None, str, str | None]


def _speculation(engine: Engine, answers: Mapping[str, Answer], metrics: Exposition | None) -> _Speculation:
    if engine == "llama.cpp":
        return _speculation_llamacpp(answers)
    if engine == "vllm":
        return _speculation_vllm(metrics)
    if engine == "sglang":
        return _speculation_sglang(answers, metrics)
    return None, "an engine that is not known here", None


def _speculation_llamacpp(answers: Mapping[str, Answer]) -> _Speculation:
    """``/slots`` alone tells: the counters read 0 with speculation off too."""
    answer = answers.get("slots")
    slots = answer.json() if answer else None
    if not isinstance(slots, list):
        return None, f"/slots does not say ({answer.seen if answer else 'not asked'})", None
    told = [s.get("speculative") for s in slots if isinstance(s, Mapping)]
    if not told or any(not isinstance(t, bool) for t in told):
        return None, "/slots carries no field speculative", None
    modes = {s["params"].get("speculative.types") for s in slots if isinstance(s.get("params"), Mapping)}
    mode = next((m for m in modes if isinstance(m, str)), None)
    if len(set(told)) > 1:
        return None, "/slots: some slots speculate and some do not", mode
    return told[0], f"/slots: speculative {str(told[0]).lower()}", mode


def _speculation_vllm(metrics: Exposition | None) -> _Speculation:
    if metrics is None:
        return None, "no readable metrics: the speculation series would tell", None
    found = bool(metrics.find("vllm:spec_decode_num_drafts_total"))
    said = "are there" if found else "are absent, and they are there only when speculation is configured"
    return found, f"the series vllm:spec_decode_* {said}", None


def _speculation_sglang(answers: Mapping[str, Answer], metrics: Exposition | None) -> _Speculation:
    answer = answers.get("server_info")
    info = answer.json() if answer else None
    if isinstance(info, Mapping) and "speculative_algorithm" in info:
        algorithm = info["speculative_algorithm"]
        mode = algorithm if isinstance(algorithm, str) else None
        return mode is not None, f"/server_info: speculative_algorithm {algorithm}", mode
    if metrics is not None and metrics.find("sglang:spec_verify_calls_total"):
        return True, "the series sglang:spec_verify_calls_total is there", None
    return None, "/server_info does not say, and no verify call has been counted", None


def _evidence(
    engine: Engine,
    adapter: str | None,
    models: list[Mapping[str, Any]],
    why_no_metrics: str | None,
    speculative: bool | None,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    offers: list[str] = []
    lacks: list[str] = []
    (offers if models else lacks).append("the models served (/v1/models)")
    (lacks if speculative is None else offers).append("whether it speculates")
    if engine == "llama.cpp":
        offers.append("tokens so far in each chunk (timings_per_token), so the first chunk's tokens are known")
        offers.append("acceptance and cached tokens of each request (timings)")
        lacks.append("verify steps of a single request")
        lacks.append("its own time to first token")
    elif engine in ("vllm", "sglang"):
        offers.append("tokens so far in each chunk (continuous_usage_stats), so the first chunk's tokens are known")
    else:
        lacks.append("tokens of the first chunk, unless it sends them unasked: rates become intervals")
    if why_no_metrics is not None:
        lacks.append(f"metrics ({why_no_metrics}): no acceptance of the run, no comparison of counts")
    elif adapter is None:
        lacks.append("a reader of its series: /metrics is kept whole, and not read yet")
    else:
        offers.append("token and acceptance counters (/metrics), and an idle check on them")
    return tuple(offers), tuple(lacks)
