"""How far the server's clock is from this client's, with its bound, from the ``Date`` of HTTP answers.

An answer sent at t0 and received at t3 (client's clock) that carries the date D was written between D and D + 1 s
(server's clock, HTTP dates are whole seconds), so that offset = server - client lies in [D - t3, D + 1 - t0]. The NTP
formula (RFC 5905) is the same with a date that has no width. Several answers across a tick of the date narrow it down
to about their distance. Durations are never taken across hosts; the offset only joins event times.
"""

import email.utils
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from infra.fetch import Fetched, fetch

DATE_RESOLUTION_S = 1.0
N_ANSWERS = 12
DISTANCE_S = 0.1


class Answer(NamedTuple):
    send_unix_s: float
    receive_unix_s: float
    date_unix_s: float


def on_this_host(url: str) -> bool:
    host = (urlsplit(url).hostname or "").lower()
    return host in ("localhost", "::1") or host.startswith("127.")


def offset_within(answers: Iterable[Answer]) -> tuple[float, float] | None:
    """(offset, bound): server - client lies in offset +- bound. None where the answers contradict each other."""
    found = list(answers)
    low = max(one.date_unix_s - one.receive_unix_s for one in found)
    high = min(one.date_unix_s + DATE_RESOLUTION_S - one.send_unix_s for one in found)
    return ((low + high) / 2, (high - low) / 2) if low <= high else None


def clock_offset(
    url: str,
    *,
    get: Callable[..., Fetched] = fetch,
    sleep: Callable[[float], None] = time.sleep,
    headers: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """``offset_s`` and ``bound_s`` with the method in words; None and ``why`` where they are not known.

    About a second of small requests, to be asked before a run and never within one.
    """
    if on_this_host(url):
        return {"offset_s": 0.0, "bound_s": 0.0, "method": "one host, one clock", "why": None}
    answers = []
    for i in range(N_ANSWERS):
        got = get(url, timeout_s=5.0, headers=headers or {})
        date = _date(got)
        if got.status is None:
            return _unknown(f"no answer: {got.error}")
        if date is None:
            return _unknown("the server's answers carry no readable Date")
        answers.append(Answer(got.send_unix_s, got.receive_unix_s, date))
        if i + 1 < N_ANSWERS:
            sleep(DISTANCE_S)
    found = offset_within(answers)
    if found is None:
        return _unknown("the dates contradict each other: several servers answer, or a clock was set meanwhile")
    method = f"{N_ANSWERS} HTTP dates of 1 s resolution, their intervals intersected"
    return {"offset_s": found[0], "bound_s": found[1], "method": method, "why": None}


def _date(got: Fetched) -> float | None:
    text = next((value for name, value in got.headers.items() if name.lower() == "date"), None)
    try:
        return None if text is None else email.utils.parsedate_to_datetime(text).timestamp()
    except ValueError:
        return None


def _unknown(why: str) -> dict[str, Any]:
    return {"offset_s": None, "bound_s": None, "method": None, "why": why}
