"""The server's own latencies against the client's clock: what the two can't both be right about.

Durations only, each on its own host's clock; nothing is subtracted across hosts. The comparison in flight joins scrapes
and requests by this client's wall clock.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from analysis.columns import packed
from analysis.conservation import n_lost
from analysis.request_checks import Check, failed, not_observable
from analysis.windows import Read
from evidence.records import Request
from infra.engines import llamacpp
from infra.engines.adapter import Adapter
from infra.engines.histogram import Latency, latency
from infra.engines.labels import chosen
from infra.engines.readings import Measured, why_none
from infra.engines.window import Snapshot, Window, total

# A server's time to first token below this part of the client's, and below this many seconds, is none.
LEAST_PART_OF_CLIENT = 0.01
LEAST_S = 0.001
# An inter-token sum may exceed the client's decode times by this much before it counts something else.
MOST_OVER_CLIENT = 1.25
SLACK_S = 0.005  # a request: the stamps of two processes
COUNT_SLACK = 0.02
FEWEST_SCRAPES = 5
LAG_REQUESTS = 0.5  # on average: a gauge shows the last step, and its scrape takes time
LATENCY_CHECKS = ("time to first token", "inter-token time", "requests in flight")


def latency_checks(
    requests: Sequence[Request],
    reads: Sequence[Read],
    windows: Sequence[Window],
    adapter: Adapter | None,
    why: str | None,
    *,
    n_unfinished: int,
) -> tuple[Check, ...]:
    """Checks of the server's times. ``why`` says why there is nothing to compare with."""
    why = why or next((window.why for window in windows if window.why is not None), None)
    if why is not None or not windows or adapter is None:
        return tuple(not_observable(name, why or "no window") for name in LATENCY_CHECKS)
    lost = n_lost(requests, n_unfinished)
    completed = [request for request in requests if request.outcome == "completed"]
    return (
        _first_token(completed, lost, windows, adapter),
        _inter_token(completed, lost, adapter.inter_token(windows)),
        _in_flight(requests, reads, n_unfinished, adapter),
    )


def _first_token(completed: Sequence[Request], lost: int, windows: Sequence[Window], adapter: Adapter) -> Check:
    """The client cannot have its first tokens sooner than the server, and hardly a hundred times later."""
    name = LATENCY_CHECKS[0]
    if adapter.engine == llamacpp.ENGINE:
        server = total(windows, llamacpp.PROMPT_SECONDS)
        reading, within, word = server.reading, server.uncertainty, "prompt work"
    else:
        told = latency(adapter.meaning.ttft, windows)
        reading, within, word = told.sum_s, 0.0, f"{told.series}"
        if isinstance(told.n, Measured) and not lost and told.n.value != len(completed):
            return not_observable(name, f"{told.series} observed {told.n.value:g}, {len(completed)} requests completed")
        if isinstance(reading, Measured) and not isinstance(told.mean_s, Measured):
            return Check(name=name, state="fail", seen=told.mean_s.why)
    if not isinstance(reading, Measured):
        return not_observable(name, why_none(reading) or "")
    known = [r.first_token_after_s for r in completed if r.first_token_after_s is not None]
    if lost or len(known) < len(completed) or not known:
        return not_observable(name, f"{lost + len(completed) - len(known)} requests have no first token to compare")
    client_s, server_s = sum(known), reading.value
    seen = (
        f"client's times to first token {client_s:.4f} s, server's {word} {server_s:.4f} s: "
        f"{(client_s - server_s) / len(known):.4f} s a request lie between"
    )
    if client_s + within < server_s:
        return failed(name, seen, "latency")
    mean_s = server_s / len(known)
    if adapter.engine != llamacpp.ENGINE and mean_s < min(LEAST_S, LEAST_PART_OF_CLIENT * client_s / len(known)):
        seen = f"{seen}: a mean of {mean_s * 1e6:.0f} us is no time to a first token, and is refused"
        return Check(name=name, state="fail", seen=seen)
    return Check(name=name, state="pass", seen=seen)


def _inter_token(completed: Sequence[Request], lost: int, told: Latency) -> Check:
    """Observations are tokens after the first, or steps; their sum is about the time from first to last token."""
    name = LATENCY_CHECKS[1]
    if (
        not isinstance(told.n, Measured)
        or not isinstance(told.sum_s, Measured)
        or not isinstance(told.mean_s, Measured)
    ):
        bad = next(r for r in (told.n, told.sum_s, told.mean_s) if not isinstance(r, Measured))
        return not_observable(name, bad.why)
    spans = [
        (r.n_completion_tokens, r.last_token_after_s - r.first_token_after_s)
        for r in completed
        if r.n_completion_tokens and r.first_token_after_s is not None and r.last_token_after_s is not None
    ]
    if lost or len(spans) < len(completed) or not spans:
        return not_observable(name, f"{lost + len(completed) - len(spans)} requests have no tokens or times to compare")
    tokens, client_s = sum(n - 1 for n, _ in spans), sum(s for _, s in spans)
    seen = (
        f"{told.n.value:g} observations of {told.observes} for {tokens} tokens after the first, "
        f"their sum {told.sum_s.value:.4f} s, client's first to last tokens {client_s:.4f} s"
    )
    if told.observes == "interval once a token":
        return not_observable(name, f"{told.note}; {seen}")
    if told.sum_s.value > MOST_OVER_CLIENT * client_s + SLACK_S * len(spans):
        times = told.sum_s.value / client_s if client_s else float("inf")
        seen = f"{seen}: {times:.2f} times as long, so whole intervals were observed once a token, or others' requests"
        return Check(name=name, state="fail", seen=seen)
    slack = COUNT_SLACK * tokens + len(spans)
    fits = told.n.value <= tokens + slack
    if told.observes == "token":
        held_back = sum(_first_count(r) - 1 for r in completed)
        fits = fits and told.n.value >= tokens - held_back - slack
    return Check(name=name, state="pass" if fits else "fail", seen=seen)


def _first_count(request: Request) -> int:
    """Tokens that came with the first chunk; 1 where that is not known."""
    return next((count for count in packed(request.chunks).tokens or () if count), 1)


def _in_flight(requests: Sequence[Request], reads: Sequence[Read], n_unfinished: int, adapter: Adapter) -> Check:
    """The server never holds more requests than this client has under way, over the scrapes within the window."""
    name = LATENCY_CHECKS[2]
    if not adapter.meaning.in_flight:
        return not_observable(name, adapter.meaning.why_no_in_flight)
    if n_unfinished:
        return not_observable(name, f"{n_unfinished} requests have no end to compare with")
    rounds = _rounds(reads, adapter)
    if len(rounds) < FEWEST_SCRAPES:
        return not_observable(name, f"{len(rounds)} scrapes within the window, {FEWEST_SCRAPES} are needed")
    sent_s = [r.sent_at_unix_s for r in requests if r.sent_at_unix_s is not None]
    begins = sorted(at - SLACK_S for at in sent_s)
    ends = sorted(r.sent_at_unix_s + r.took_s + 0.05 for r in requests if r.sent_at_unix_s is not None)
    # Begun by the scrape's end, less those that had ended before it was sent.
    ours = [bisect_right(begins, received) - bisect_left(ends, sent) for sent, received, _ in rounds]
    theirs = [n for _, _, n in rounds]
    mean_server, mean_client = sum(theirs) / len(rounds), sum(ours) / len(rounds)
    seen = f"server {mean_server:.3g} on average over {len(rounds)} scrapes, client at most {mean_client:.3g}"
    if mean_server > mean_client + LAG_REQUESTS:
        return failed(name, f"{seen}: the server held requests that are not this client's", "latency")
    return Check(name=name, state="pass", seen=seen)


def _rounds(reads: Sequence[Read], adapter: Adapter) -> list[tuple[float, float, float]]:
    """(sent, received, requests inside the engine) of each scrape within the window, URLs of a round added."""
    by_url: dict[str, list[tuple[float, float, float]]] = {}
    for scrape, read in reads:
        if scrape.role != "during" or not isinstance(read, Snapshot):
            continue
        gauges = [chosen(read.exposition.find(name), adapter.rule) for name in adapter.meaning.in_flight]
        if any(gauges):
            held = sum(sample.value for found in gauges for sample in found)
            by_url.setdefault(scrape.url, []).append((scrape.send_unix_s, scrape.receive_unix_s, held))
    columns = list(by_url.values())
    if not columns or len({len(column) for column in columns}) > 1:
        return []
    return [
        (min(s for s, _, _ in together), max(r for _, r, _ in together), sum(n for _, _, n in together))
        for together in zip(*columns, strict=True)
    ]
