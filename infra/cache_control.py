"""What a server remembers between requests, how it is made to forget, and what proves that it has.

``cold`` is proven, never assumed: the reply of the reset says so in its body (a status of 200 is not enough), the
server was idle, and the requests sent before any answer had ended took no token from a cache. Where an engine has no
reset for something it keeps, only a restart clears it, and that is said. The rules are those of SGLang 0.5.17 to
0.5.23, vLLM 0.33 and llama.cpp b11434.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from infra.dial import DialError, exchange
from infra.target import Target
from infra.wire.http1 import read_response

Policy = Literal["cold", "warm", "as-is"]
ReplyState = Literal[
    "reset", "per request", "restarted", "refused", "unsaid", "no endpoint", "unreachable", "needs restart", "not asked"
]
ColdState = Literal["proven", "not proven", "needs restart"]

_KEPT_BODY = 2000
_AGAIN_S = 0.5
_SGLANG_SAYS = "Cache flushed."
# Drafting state that outlives a request, by engine and mode: what it is, and what clears it.
_LEARNS: Mapping[tuple[str, str], tuple[str, str]] = {
    ("sglang", "NGRAM"): ("the n-gram trie learns from every answer", "reset"),
    ("vllm", "suffix"): ("the suffix tree learns from every answer", "restart"),
    ("llama.cpp", "ngram-mod"): ("the n-gram table is shared by all requests and slots", "restart"),
    ("llama.cpp", "ngram-cache"): ("the n-gram cache of a slot outlives its requests", "restart"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ResetPlan:
    """What a cold state takes on this engine. ``path`` None: there is no call to make."""

    path: str | None
    clears: tuple[str, ...]
    leaves: tuple[str, ...]  # what it does not clear, where the server has it
    needs_restart: str | None  # why only a restart will do
    request_extra: Mapping[str, Any] = field(default_factory=dict)  # body fields that keep each request cold by itself


@dataclass(frozen=True, kw_only=True, slots=True)
class ResetReply:
    """What was asked and what came; ``body`` verbatim up to 2,000 characters. ``why`` ends with what to do."""

    engine: str
    policy: Policy
    asked: str | None  # method and path
    state: ReplyState
    why: str
    http_status: int | None = None
    body: str | None = None
    n_tries: int = 0
    at_unix_s: float | None = None
    took_s: float | None = None

    def record(self) -> dict[str, Any]:
        """As JSON, for evidence."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, kw_only=True, slots=True)
class Coldness:
    state: ColdState
    why: str


def learns_over_requests(engine: str, mode: str | None) -> str | None:
    """What the drafting of this mode learns from one request to the next; None where it learns nothing."""
    found = [_LEARNS[key][0] for kind in _kinds(mode) if (key := (_family(engine), kind)) in _LEARNS]
    return "; ".join(found) or None


def reset_plan(engine: str, settings: Mapping[str, Any] | None = None, mode: str | None = None) -> ResetPlan:
    """How this engine is made cold. ``settings`` as resolved, ``mode`` its kind of speculation, its own word. Pure."""
    settings = settings or {}
    family = _family(engine)
    restart = [_LEARNS[key][0] for kind in _kinds(mode) if _LEARNS.get(key := (family, kind), ("", ""))[1] == "restart"]
    if family == "sglang":
        storage = settings.get("hicache_storage_backend")
        corpus = settings.get("speculative_ngram_external_corpus_path")
        leaves = [f"the storage tier {storage}: POST /hicache/storage-backend/clear"] if storage else []
        leaves += ["an external corpus: POST /remove_external_corpus"] if corpus else []
        cleared = ("prefix cache", "KV pools of target and draft", "n-gram trie", "grammar cache")
        return ResetPlan(path="/flush_cache", clears=cleared, leaves=tuple(leaves), needs_restart=None)
    if family == "vllm":
        tiers = any(key.startswith("kv_transfer_config") and value for key, value in settings.items())
        kept = settings.get("speculative_config.suffix_decoding_max_cached_requests")
        return ResetPlan(
            path="/reset_prefix_cache" + ("?reset_external=true" if tiers else ""),
            clears=("prefix cache", *(["external tiers"] if tiers else [])),
            leaves=(),
            needs_restart="; ".join(restart) or None if kept != 0 else None,
        )
    if family == "llama.cpp":
        return ResetPlan(
            path=None,
            clears=(),
            leaves=(),
            needs_restart="; ".join(restart) or None,
            request_extra={"cache_prompt": False},
        )
    return ResetPlan(path=None, clears=(), leaves=(), needs_restart="no way to reset this engine is known")


def judge_reply(engine: str, status: int | None, body: str) -> tuple[ReplyState, str]:
    """What a reply to the reset means. Pure; the status alone decides nothing."""
    family = _family(engine)
    if status == 404:
        flag = (
            "start it with VLLM_SERVER_DEV_MODE=1, on loopback only" if family == "vllm" else "check engine and address"
        )
        return "no endpoint", f"HTTP 404: there is no such endpoint; {flag}"
    if status in (401, 403):
        return "refused", f"HTTP {status}: it wants a key (an admin key, where one is set); give it in OPENAI_API_KEY"
    if family == "sglang":
        if status == 400:
            return "refused", f"HTTP 400, requests are running or queued: {body.strip()}; drain first"
        if status == 200 and body.startswith(_SGLANG_SAYS):
            return "reset", f"HTTP 200: {_SGLANG_SAYS}"
        return "refused", f"HTTP {status} and not {_SGLANG_SAYS!r} but {body.strip()[:200]!r}; read its log"
    if status != 200:
        return "refused", f"HTTP {status}: {body.strip()[:200]}; read its log"
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    success = said.get("success") if isinstance(said, Mapping) else None
    if success is True:
        return "reset", "HTTP 200: success true"
    if success is False:
        return "refused", "HTTP 200 with success false: blocks are still held; drain first"
    return "unsaid", "HTTP 200, and the body does not say whether it was done: this version does not check"


def reset(
    engine: str,
    url: str,
    policy: Policy,
    *,
    settings: Mapping[str, Any] | None = None,
    mode: str | None = None,
    headers: Sequence[tuple[str, str]] = (),
    timeout_s: float = 30.0,
    busy_within_s: float = 10.0,
    fresh: str | None = None,
) -> ResetReply:
    """Make the server cold where ``policy`` asks for it; a busy one is asked again within ``busy_within_s``.

    ``fresh`` says what shows that the engine was launched anew for this cell: that is the reset of what only a restart
    clears. ``warm`` and ``as-is`` call nothing. Raises nothing for what a server does.
    """
    plan = reset_plan(engine, settings, mode)

    def replied(state: ReplyState, why: str, **more: Any) -> ResetReply:
        return ResetReply(engine=engine, policy=policy, state=state, why=why, **{"asked": None, **more})

    if policy != "cold":
        return replied("not asked", f"the policy is {policy}")
    if plan.needs_restart is not None and fresh is None:
        return replied("needs restart", f"{plan.needs_restart}, and only a restart clears it: launch anew")
    if plan.needs_restart is not None and plan.path is None:
        return replied("restarted", f"{plan.needs_restart}: {fresh}")
    if plan.path is None:
        shown = json.dumps(dict(plan.request_extra))
        return replied("per request", f"there is no reset; every request carries {shown}")
    started, at_unix_s, n_tries = time.monotonic(), time.time(), 0
    while True:
        n_tries += 1
        status, body, fault = _post(url, plan.path, headers, timeout_s)
        state: ReplyState
        state, why = ("unreachable", fault) if fault else judge_reply(engine, status, body)
        if state != "refused" or status not in (200, 400) or time.monotonic() - started > busy_within_s:
            break
        time.sleep(_AGAIN_S)
    if state == "reset" and plan.leaves:
        state, why = "unsaid", f"{why}; it leaves {', '.join(plan.leaves)}"
    if state == "reset" and plan.needs_restart is not None:
        state, why = "restarted", f"{why}; {plan.needs_restart}: {fresh}"
    return replied(
        state,
        why,
        asked=f"POST {plan.path}",
        http_status=status,
        body=body[:_KEPT_BODY] if status is not None else None,
        n_tries=n_tries,
        at_unix_s=at_unix_s,
        took_s=time.monotonic() - started,
    )


def prove_cold(
    reply: ResetReply, first_cached: Sequence[int | None], *, idle: bool | None, restarted: bool = False
) -> Coldness:
    """Whether the state was cold when measuring began. Pure.

    ``first_cached``: prompt tokens from a cache of each request sent before any answer had ended (of all requests where
    each is to be cold), None where the server does not say. ``idle``: the idle check before the run, None if not made.
    ``restarted``: the engine is a new process that answered nothing but the launch's own question.
    """
    if reply.state == "needs restart" and not restarted:
        return Coldness(state="needs restart", why=reply.why)
    if not restarted and reply.state not in ("reset", "per request", "restarted"):
        return Coldness(state="not proven", why=f"the reset was not done ({reply.state}): {reply.why}")
    if idle is not True:
        seen = "was not looked at" if idle is None else "was at work"
        return Coldness(state="not proven", why=f"the server {seen} when measuring began")
    if not first_cached:
        return Coldness(state="not proven", why="no request says how many of its prompt tokens came from a cache")
    silent = sum(1 for n in first_cached if n is None)
    if silent:
        flag = {"sglang": "--enable-cache-report", "vllm": "--enable-prompt-tokens-details"}.get(_family(reply.engine))
        how = f": start the server with {flag}" if flag else ""
        return Coldness(
            state="not proven", why=f"{silent} of {len(first_cached)} requests do not say their cached tokens{how}"
        )
    warm = [n for n in first_cached if n]
    if warm:
        shown = f"{len(warm)} of {len(first_cached)} first requests took up to {max(warm)} prompt tokens from a cache"
        return Coldness(state="not proven", why=shown)
    how = "restarted" if restarted else reply.why
    return Coldness(state="proven", why=f"{how}; idle; {len(first_cached)} first requests with 0 cached tokens")


def _post(url: str, path: str, headers: Sequence[tuple[str, str]], timeout_s: float) -> tuple[int | None, str, str]:
    """Status, body and, where no whole answer came, why."""
    target = Target.parse(url)
    try:
        segments, ended, _ = exchange(target, target.request("POST", path, headers), timeout_s)
    except DialError as error:
        return None, "", str(error)
    response = read_response((segment.data for segment in segments), method="POST")
    body = response.body.decode("utf-8", "replace")
    if response.head is None or response.complete is False:
        return None, body, f"POST {path}: no whole answer ({ended}); look at the server"
    return response.head.status, body, ""


def _family(engine: str) -> str:
    return "llama.cpp" if engine.startswith("llama.cpp") else engine.lower()


def _kinds(mode: str | None) -> list[str]:
    """A mode's parts: llama.cpp takes a list of them."""
    return [kind.strip().replace("_", "-") if kind.islower() else kind for kind in (mode or "").split(",") if kind]
