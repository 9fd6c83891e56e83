"""The fake ``/metrics``: llama.cpp's exposition text, counters that agree with what was served, ways to be wrong."""

import random
from collections.abc import Iterator

from infra.fake.answer import Answer
from infra.fake.script import End, Script, Send, head_bytes, reply, say

MODES: dict[str, str] = {
    "ok": "the counters agree with what was served",
    "off": "501, as llama.cpp without --metrics",
    "missing": "404, as a server without the route",
    "garbled": "one sample's value is a word",
    "duplicate": "one series twice, with two values",
    "no-newline": "the last line has no line feed",
    "truncated": "Content-Length is larger than what comes before FIN, which cuts a number",
    "html": "200 with an HTML page",
    "hang": "no answer",
    "restart": "counters of an earlier life, which drop to zero at the end of the Nth request (--restart-at N)",
    "foreign": "every request is counted twice, as if somebody else had sent the same",
    "busy": "tokens appear at every scrape, as if somebody else were always there",
    "noise": "gauges take random values (seed 0) that mean nothing",
}
TEXT = "text/plain; version=0.0.4"
PREDICTED = "llamacpp:tokens_predicted_total"


class Counters:
    """What llama.cpp would have counted; an answer is added when its slot is released, whatever its end."""

    def __init__(self, mode: str, started_ns: int, restart_at: int = 2) -> None:
        self.mode = mode
        self.restart_at = restart_at
        self.noise = random.Random(0)
        self.n_finished = 0
        self.at: dict[int, int] = {}
        self.clear(started_ns)
        if mode == "restart":
            self.prompt = 40_000
            self.predicted = 12_000
            self.predicted_s = 300.0
            self.prompt_s = 20.0
            self.decodes = 9_000
            self.drafted, self.accepted, self.drafts, self.at = 9_000, 5_000, 3_000, {0: 2_500, 1: 1_500, 2: 1_000}

    def clear(self, started_ns: int) -> None:
        """A new process life: everything zero, a new start time."""
        self.started_us = started_ns // 1000
        self.prompt = self.cached = self.predicted = self.decodes = self.longest = 0
        self.drafted = self.accepted = self.drafts = 0
        self.prompt_s = self.predicted_s = 0.0
        self.at = {}
        self.bucket = [0, 0.0, 0, 0.0]  # prompt tokens, seconds, predicted tokens, seconds since the last scrape

    def add(self, answer: Answer, now_ns: int) -> None:
        """Count an answer that has ended; one without a sent token is invisible, as in the engine."""
        self.n_finished += 1
        if self.mode == "restart" and self.n_finished == self.restart_at:
            self.clear(now_ns)
        if not answer.n_sent:
            return
        n_prompt = answer.n_prompt - answer.n_cached
        prompt_s = (answer.first_due_ns - answer.begun_ns) / 1e9
        last_ns = answer.last_sent_ns if answer.last_sent_ns is not None else answer.first_due_ns
        predicted_s = max(last_ns - answer.first_due_ns, 0) / 1e9
        for _ in range(2 if self.mode == "foreign" else 1):
            self.prompt += n_prompt
            self.cached += answer.n_cached
            self.predicted += answer.n_sent
            self.prompt_s += prompt_s
            self.predicted_s += predicted_s
            self.decodes += len(answer.sent_steps)
            self.longest = max(self.longest, answer.n_prompt + answer.n_sent)
            self.bucket = [
                a + b for a, b in zip(self.bucket, (n_prompt, prompt_s, answer.n_sent, predicted_s), strict=True)
            ]
            for step in answer.sent_steps:
                self.drafts += step.n_drafted > 0
                self.drafted += step.n_drafted
                self.accepted += step.n_accepted
                for position in range(step.n_accepted):
                    self.at[position] = self.at.get(position, 0) + 1

    def text(self, n_running: int, n_waiting: int = 0) -> str:
        """The exposition body. Reading it resets the two rate gauges, as the engine's does."""
        if self.mode == "busy":
            self.predicted += 7
        n_prompt, prompt_s, n_predicted, predicted_s = self.bucket
        self.bucket = [0, 0.0, 0, 0.0]
        gauges = [
            ("prompt_tokens_seconds", n_prompt / prompt_s if prompt_s else 0.0),
            ("predicted_tokens_seconds", n_predicted / predicted_s if predicted_s else 0.0),
            ("requests_processing", n_running),
            ("requests_deferred", n_waiting),
            ("n_busy_slots_per_decode", float(self.decodes > 0)),
        ]
        if self.mode == "noise":
            gauges = [(name, self.noise.uniform(0, 500)) for name, _ in gauges]
        lines = [line for name, value in self._counters() for line in _series(name, "counter", value)]
        lines += [line for name, value in gauges for line in _series(name, "gauge", value)]
        if self.at:
            name = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
            lines += [f"# HELP {name} Accepted draft tokens by position.", f"# TYPE {name} counter"]
            lines += [f'{name}{{position="{position}"}} {self.at[position]}' for position in sorted(self.at)]
        return "\n".join(lines) + "\n"

    def _counters(self) -> Iterator[tuple[str, float]]:
        yield "prompt_tokens_total", self.prompt
        yield "prompt_tokens_cached_total", self.cached
        yield "prompt_seconds_total", self.prompt_s
        yield "tokens_predicted_total", self.predicted
        yield "tokens_predicted_seconds_total", self.predicted_s
        yield "n_decode_total", self.decodes
        yield "n_tokens_max", self.longest
        yield "spec_decode_num_draft_tokens_total", self.drafted
        yield "spec_decode_num_accepted_tokens_total", self.accepted
        yield "spec_decode_num_drafts_total", self.drafts

    def script(self, n_running: int, n_waiting: int = 0) -> Script:
        """The answer to GET /metrics in the present mode."""
        if self.mode == "off":
            return reply(
                501,
                "application/json",
                b'{"error":{"code":501,"message":"metrics are off","type":"not_supported_error"}}',
            )
        if self.mode == "missing":
            return reply(
                404, "application/json", b'{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}'
            )
        if self.mode == "html":
            return reply(200, "text/html", b"<html><body>sign in</body></html>")
        if self.mode == "hang":
            return iter([End.HANG])
        text = self.text(n_running, n_waiting)
        if self.mode == "garbled":
            text = text.replace(f"\n{PREDICTED} ", f"\n{PREDICTED} twelve ")
        elif self.mode == "duplicate":
            text += f"{PREDICTED} {self.predicted + 1}\n"
        elif self.mode == "no-newline":
            text = text.rstrip("\n")
        body = text.encode()
        started = str(self.started_us)
        if self.mode == "truncated":
            headers = {"Content-Type": TEXT, "Content-Length": str(len(body)), "Process-Start-Time-Unix": started}
            return _cut_short(head_bytes(200, headers) + _within_number(body))
        return reply(200, TEXT, body, headers={"Process-Start-Time-Unix": started})


def _cut_short(data: bytes) -> Script:
    yield Send(0, say(data))
    yield End.CLOSE


def _within_number(body: bytes) -> bytes:
    """The body up to within the value of the predicted tokens: what is left still reads as a number."""
    start = body.index(b"\n%s " % PREDICTED.encode()) + len(PREDICTED) + 2
    n_digits = body.index(b"\n", start) - start
    return body[: start + max(n_digits - 1, 1)]


def _series(name: str, kind: str, value: float) -> list[str]:
    """C++'s default for a double: six significant digits."""
    full = f"llamacpp:{name}"
    return [f"# HELP {full} {name.replace('_', ' ')}.", f"# TYPE {full} {kind}", f"{full} {value:g}"]
