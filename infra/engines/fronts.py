"""Fronts: what answers for an engine without being one, as its own series, headers and model list show.

A front's metrics are about its own traffic, and a request that it holds, repeats, rewrites or spreads is timed with it.
The engine's counters are at the workers' addresses.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

Kind = Literal["router", "gateway", "thinking stripper", "proxy", "hosted API"]

_WORKERS = "pass each worker's /metrics with --metrics-url (repeatable); their counts are added"
# Prefix of a series -> what exports it. The engines' own prefixes are not here.
_SERIES: tuple[tuple[str, str, Kind], ...] = (
    ("smg_", "SGLang's model gateway", "router"),
    ("sgl_router_", "SGLang's router", "router"),
    ("sgl_model_gateway_", "SGLang's model gateway", "router"),
    ("vllm:current_qps", "the vLLM production stack's router", "router"),
    ("vllm:num_prefill_requests", "the vLLM production stack's router", "router"),
    ("vllm:healthy_pods_total", "the vLLM production stack's router", "router"),
    ("litellm_", "LiteLLM", "gateway"),
    ("dynamo_frontend_", "Dynamo's frontend", "router"),
)
_OWNERS: Mapping[str, tuple[str, Kind]] = {
    "turbollm": ("TurboLLM", "thinking stripper"),
    "litellm": ("LiteLLM", "gateway"),
}
_HEADERS: tuple[tuple[str, str, Kind], ...] = (
    ("x-litellm-version", "LiteLLM", "gateway"),
    ("x-litellm-call-id", "LiteLLM", "gateway"),
)
# Hosts of APIs that run someone else's engines and show no metrics; their model lists name these owners.
_HOSTED_OWNERS = frozenset(
    {"openai", "openai-internal", "system", "mistralai", "anthropic", "google", "groq", "together"}
)
_PROXY_SERVERS = ("nginx", "cloudflare", "envoy", "caddy", "traefik", "istio-envoy", "haproxy")


@dataclass(frozen=True, kw_only=True, slots=True)
class Front:
    """What stands before the engine, by which witness, what it does to a measurement and what to do about it."""

    name: str
    kind: Kind
    seen: str
    does: str
    remedy: str


_DOES: Mapping[Kind, tuple[str, str]] = {
    "router": ("it spreads requests over workers, and its metrics are its own", _WORKERS),
    "gateway": ("it rewrites requests and answers, may retry, and counts in units of its own", _WORKERS),
    "thinking stripper": (
        "it takes thinking blocks out of the answer: tokens are made and counted that never arrive, so the first "
        "visible token comes late and tokens per visible character look wrong",
        "measure the engine behind it, or read time to first visible content and the server's own counts only",
    ),
    "proxy": (
        "it may hold the stream back, close it, or answer in the engine's place",
        "measure the engine's own address",
    ),
    "hosted API": (
        "its engine, its load and its configuration are not shown",
        "latencies and rates by usage are what it can show; acceptance and counters are not observable",
    ),
}


def front(
    *,
    names: Iterable[str],
    owners: Sequence[str],
    headers: Sequence[Mapping[str, str]],
    host: str,
    engine: str,
    workers: Any,
) -> Front | None:
    """The front that the witnesses show, or None. ``names`` are series, ``workers`` what /workers says."""
    found = sorted(set(names))
    for prefix, name, kind in _SERIES:
        series = next((one for one in found if one.startswith(prefix)), None)
        if series is not None and not _own_engine_counts(found):
            return _made(name, kind, f"the series {series}")
    folded = [{key.lower(): value for key, value in one.items()} for one in headers]
    for header, name, kind in _HEADERS:
        value = next((one[header] for one in folded if header in one), None)
        if value is not None:
            return _made(name, kind, f"the header {header}: {value}")
    for owner in owners:
        known = _OWNERS.get(owner.lower())
        if known is not None:
            return _made(*known, f'owned_by "{owner}"')
    listed = workers.get("workers") if isinstance(workers, Mapping) else None
    if isinstance(listed, list):
        return _made("a router", "router", f"/workers lists {len(listed)} workers")
    return _before_an_engine(folded, owners, host, engine)


def _before_an_engine(
    folded: Sequence[Mapping[str, str]], owners: Sequence[str], host: str, engine: str
) -> Front | None:
    servers = sorted({one["server"] for one in folded if one.get("server")})
    if engine == "llama.cpp" and folded and not any(name.lower().startswith("llama.cpp") for name in servers):
        said = ", ".join(servers) or "no Server header"
        return _made(
            "a front", "proxy", f"it says it is a llama.cpp, which names itself in every answer's head: {said}"
        )
    proxy = next((name for name in servers if name.lower().startswith(_PROXY_SERVERS)), None)
    via = next((one["via"] for one in folded if one.get("via")), None)
    if engine == "unknown" and any(owner.lower() in _HOSTED_OWNERS for owner in owners) and _is_public(host):
        return _made("a hosted API", "hosted API", f"owned_by {', '.join(sorted(set(owners))[:3])} at {host}")
    if proxy is not None or via is not None:
        return _made(proxy or "a proxy", "proxy", f"the header {'Server: ' + proxy if proxy else 'Via: ' + str(via)}")
    return None


def _own_engine_counts(names: Sequence[str]) -> bool:
    """An engine's own token counters beside a front's series: the engine itself, with a name that looks alike."""
    return any(name.startswith(("vllm:generation_tokens", "sglang:generation_tokens")) for name in names)


def _is_public(host: str) -> bool:
    name = (urlsplit(host).hostname or host).strip("[]")
    private = ("localhost", "127.", "10.", "192.168.", "172.16.", "::1", "0.0.0.0")
    return "." in name and not name.startswith(private) and not name.endswith((".local", ".internal", ".svc"))


def _made(name: str, kind: Kind, seen: str) -> Front:
    does, remedy = _DOES[kind]
    return Front(name=name, kind=kind, seen=seen, does=does, remedy=remedy)
