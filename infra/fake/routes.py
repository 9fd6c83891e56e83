"""What each path of the fake engine answers: from one request read whole to the script of its answer."""

import json
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from infra.fake.answer import Answer, dump, tokenize
from infra.fake.cadence import cadence_script
from infra.fake.counters import MODES, Counters
from infra.fake.faults import FAULTS, Fault, error_body, find_fault
from infra.fake.profiler import FakeProfiler
from infra.fake.schedule import ScheduleError, read_schedule
from infra.fake.script import Script, reply, stream_script

JSON = "application/json; charset=utf-8"
GENERATED = ("/v1/chat/completions", "/v1/completions")
UNBOUNDED = 64  # slots it claims where it has no limit


class Incoming(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]  # lower-case names
    body: bytes
    received_ns: int


@dataclass(kw_only=True)
class Engine:
    """The engine's settings and state; one a process."""

    counters: Counters
    defaults: dict[str, Any] = field(default_factory=dict)  # a schedule, less what requests say
    fault: str | None = None
    api_key: str | None = None
    prefix: str = ""
    model: str = "fake"
    n_slots: int | None = None  # so many answers are generated at once, others wait; None: all at once
    owner: str = "llamacpp"  # owned_by of its model: what it says it is
    profiler: FakeProfiler = field(default_factory=FakeProfiler)
    running: set[Answer] = field(default_factory=set)
    waiting: deque[tuple[Any, Incoming]] = field(default_factory=deque)  # for a slot, with whom they came from
    seen_prompts: set[str] = field(default_factory=set)
    n_requests: int = 0

    def is_full(self) -> bool:
        """Whether an answer that is to be generated has to wait until another has ended."""
        return self.n_slots is not None and len(self.running) >= self.n_slots

    def generates(self, request: Incoming) -> bool:
        """Whether the request is one for a model, which takes a slot."""
        return request.path.partition("?")[0].endswith(GENERATED)

    def answer(self, request: Incoming, begun_ns: int | None = None) -> tuple[Script, Answer | None]:
        """The script, and the answer that it plays when it is one of a model; ``begun_ns``: a slot is free since."""
        path = request.path.partition("?")[0]
        if not path.startswith(self.prefix):
            return self._error(404, f"no such path {path}, all are under {self.prefix}"), None
        path = path[len(self.prefix) :]
        if path == "/health":
            return reply(200, JSON, b'{"status":"ok"}'), None
        if self.api_key is not None and request.headers.get("authorization") != f"Bearer {self.api_key}":
            return self._error(401, "Invalid API Key", "authentication_error"), None
        if path in GENERATED:
            return self._generate(request, begun_ns, chat=path == "/v1/chat/completions")
        return self._other(request, path), None

    def _other(self, request: Incoming, path: str) -> Script:
        if path == "/metrics":
            return self.counters.script(len(self.running), len(self.waiting))
        if path == "/tokenize":
            body = _json(request.body)
            content = body.get("content") if isinstance(body, dict) else None
            return reply(200, JSON, dump({"tokens": [1000 + len(t) for t in tokenize(str(content or ""))]}))
        if path == "/start_profile":
            status, said = self.profiler.start(_json(request.body))
            return reply(status, "text/plain; charset=utf-8", said.encode())
        if path == "/server_info" and self.owner == "sglang":
            return reply(200, JSON, json.dumps(self._server_info()).encode())
        if path == "/flush_cache" and self.owner == "sglang":
            self.seen_prompts.clear()
            return reply(200, "text/plain; charset=utf-8", b"Cache flushed.\n")
        if path == "/fake/control":
            return self._control(_json(request.body), request.received_ns)
        described = {"/v1/models": self._models, "/props": self._props, "/slots": self._slots}.get(path)
        if described is None:
            return self._error(404, "File Not Found", "not_found_error")
        return reply(200, JSON, json.dumps(described()).encode())

    def _generate(self, request: Incoming, begun_ns: int | None, *, chat: bool) -> tuple[Script, Answer | None]:
        body = _json(request.body)
        if not isinstance(body, dict):
            return self._error(400, "the body is not a JSON object"), None
        try:
            answer, fault = self._prepare(body, request.received_ns, begun_ns, chat=chat)
        except ScheduleError as error:
            return self._error(400, str(error)), None
        self.running.add(answer)
        if fault.whole is not None:
            return fault.whole(answer), answer
        if not body.get("stream"):
            for event in answer.events():  # so that timings, deadline and counts are those of the whole answer
                answer.mark_sent(event, event.due_ns)
            return reply(200, JSON, dump(answer.whole()), due_ns=answer.last_due_ns), answer
        assert fault.manner is not None
        if answer.schedule.cadence and fault is find_fault("none"):
            return cadence_script(answer), answer
        return stream_script(answer, fault.manner()), answer

    def _prepare(
        self, body: dict[str, Any], received_ns: int, begun_ns: int | None, *, chat: bool
    ) -> tuple[Answer, Fault]:
        own = body.get("fake") or {}
        schedule = read_schedule(self.defaults, own)
        name = own.get("fault") or _named(body.get("model")) or _named(_last_text(body)) or schedule.fault or self.fault
        if name is not None and name not in FAULTS:
            raise ScheduleError(name, "no such fault; --list-faults prints them")
        fault = find_fault(name or "none")
        if fault.schedule:
            schedule = read_schedule(self.defaults, fault.schedule, own)
        self.n_requests += 1
        return Answer(
            body,
            schedule,
            chat=chat,
            received_ns=received_ns,
            begun_ns=begun_ns,
            created_unix_s=int(time.time()),
            number=self.n_requests,
            n_cached=self._n_cached(body),
        ), fault

    def _n_cached(self, body: dict[str, Any]) -> int:
        """The whole prompt when it was seen before and the request does not refuse the cache."""
        key = json.dumps(body.get("messages") or body.get("prompt"), sort_keys=True)
        known = key in self.seen_prompts
        self.seen_prompts.add(key)
        return 10**9 if known and body.get("cache_prompt", True) else 0

    def release(self, answer: Answer, now_ns: int) -> None:
        """The answer has ended, however it did: count it once."""
        if answer in self.running:
            self.running.discard(answer)
            self.counters.add(answer, now_ns)
            self.profiler.ended()

    def _control(self, wish: Any, now_ns: int) -> Script:
        """{"metrics": MODE}, {"restart": true}, {"fault": NAME or null}, {"fake": {...}}: change the engine now."""
        if not isinstance(wish, dict) or wish.keys() - {"metrics", "restart", "fault", "fake"}:
            return self._error(400, "control takes an object of metrics, restart, fault, fake")
        if wish.get("metrics", "ok") not in MODES or wish.get("fault") not in {None, *FAULTS}:
            return self._error(400, "no such metrics mode or fault")
        self.counters.mode = wish.get("metrics", self.counters.mode)
        self.fault = wish.get("fault", self.fault)
        self.defaults = wish.get("fake", self.defaults)
        if wish.get("restart"):
            self.counters.clear(now_ns)
        return reply(200, JSON, b"{}")

    def _error(self, status: int, message: str, kind: str = "invalid_request_error") -> Script:
        return reply(status, JSON, error_body(status, message, kind))

    def _models(self) -> dict[str, Any]:
        meta = {"n_vocab": 4096, "n_ctx_train": 8192, "n_params": 0, "size": 0}
        entry = {"id": self.model, "object": "model", "created": 0, "owned_by": self.owner, "meta": meta}
        return {"object": "list", "data": [entry]}

    def _server_info(self) -> dict[str, Any]:
        """As an SGLang without speculation reports itself; see ``--owner``."""
        return {
            "version": "0.5.17",
            "model_path": self.model,
            "served_model_name": self.model,
            "speculative_algorithm": None,
            "tp_size": 1,
        }

    def _props(self) -> dict[str, Any]:
        return {
            "build_info": "fake-1",
            "model_path": f"{self.model}.gguf",
            "model_ftype": "F32",
            "total_slots": self.n_slots or UNBOUNDED,
            "chat_template": "",
            "default_generation_settings": {"n_ctx": 8192, "params": {"temperature": 0.8, "seed": 4294967295}},
        }

    def _slots(self) -> list[dict[str, Any]]:
        speculative = read_schedule(self.defaults).drafted > 0
        n_busy = len(self.running)
        slots = range(max(min(self.n_slots or UNBOUNDED, 4), n_busy))
        return [{"id": k, "n_ctx": 8192, "speculative": speculative, "is_processing": k < n_busy} for k in slots]


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def _named(text: Any) -> str | None:
    """The fault in a model's name or at the head of a prompt: "fake-NAME", then the end or a colon."""
    head = str(text or "").partition(":")[0]
    return head[5:] if head[:5] == "fake-" else None


def _last_text(body: dict[str, Any]) -> Any:
    messages = body.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    return last.get("content") if isinstance(last, dict) else body.get("prompt")
