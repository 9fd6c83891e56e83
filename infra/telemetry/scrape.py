"""Whole ``/metrics`` bodies as evidence: before, during, after, and until the server is at rest.

A scrape that fails is a scrape: it is recorded with its error and nothing is raised. What it means is not judged here,
but for the idle check, which has to know when to stop waiting.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from evidence.records import Scrape, ScrapeRole
from evidence.redact import redact_headers, redact_text
from infra.engines.adapter import Adapter, adapter_for, idle_key, read_snapshot, speaks
from infra.fetch import Fetched, fetch, headers_for
from infra.wire.exposition import METRICS_ACCEPT, ExpositionError

EQUAL_SCRAPES = 3  # in a row, of every URL
_NEVER_COMES = frozenset({401, 403, 404, 405, 501})  # metrics that are off do not come back by waiting


class Stop(Protocol):
    """What ``threading.Event`` and ``gevent.event.Event`` have in common."""

    def wait(self, timeout: float) -> Any: ...
    def is_set(self) -> bool: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Idle:
    """Outcome of an idle check. ``seen`` says what was equal, or why it was not shown."""

    proven: bool
    n_rounds: int
    seen: str


def to_record(got: Fetched, *, run_id: str, role: ScrapeRole, level: str | None = None) -> Scrape:
    """A record of what came, without the values of secret query fields and headers.

    Bytes that are no UTF-8 are kept escaped, and are an error.
    """
    error = None if got.error is None else redact_text(got.error)
    text = None
    if got.body is not None:
        try:
            text = got.body.decode("utf-8")
        except UnicodeDecodeError as bad:
            text = got.body.decode("utf-8", "backslashreplace")
            error = error or f"not UTF-8 at byte {bad.start}; kept with escapes"
    return Scrape(
        run_id=run_id,
        url=redact_text(got.url),
        role=role,
        level=level,
        send_unix_s=got.send_unix_s,
        receive_unix_s=got.receive_unix_s,
        send_monotonic_s=got.send_monotonic_s,
        receive_monotonic_s=got.receive_monotonic_s,
        http_status=got.status,
        headers=redact_headers(got.headers),
        body=text,
        complete=got.complete,
        error=error,
    )


def usable(scrape: Scrape) -> str | None:
    """None for a whole body of status 200; else why it cannot be read."""
    if scrape.error is not None or scrape.body is None:
        return scrape.error or "no body"
    return None if scrape.complete else "nothing shows that the body is whole"


class Scraper:
    """Scrapes every URL, one after another, into ``sink``.

    ``loop`` is for a thread or a greenlet of the caller's; stop it by setting its ``stop``. Headers (an API key, say)
    are sent and never recorded; with ``home``, a base URL, those that hold a secret go to its origin (scheme, host and
    port) alone. What ``sink`` raises comes out: lost evidence must not stay unseen.
    """

    def __init__(
        self,
        urls: Sequence[str],
        sink: Callable[[Scrape], None],
        *,
        run_id: str,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 5.0,
        home: str | None = None,
    ) -> None:
        self.urls = tuple(urls)
        self._sink = sink
        self._run_id = run_id
        self._headers = {"Accept": METRICS_ACCEPT, **(headers or {})}
        self._timeout_s = timeout_s
        self._home = home

    def scrape(self, role: ScrapeRole, level: str | None = None) -> tuple[Scrape, ...]:
        """One scrape of each URL, in order, each handed to the sink as it comes."""
        records = []
        for url in self.urls:
            got = fetch(url, timeout_s=self._timeout_s, headers=headers_for(url, self._headers, self._home))
            record = to_record(got, run_id=self._run_id, role=role, level=level)
            self._sink(record)
            records.append(record)
        return tuple(records)

    def loop(self, interval_s: float, stop: Stop, *, level: str | None = None) -> int:
        """Scrape every ``interval_s`` until ``stop`` is set; a round that took longer delays the next, none is made up.

        Returns the number of rounds.
        """
        n_rounds = 0
        next_s = time.monotonic() + interval_s
        while not stop.is_set():
            stop.wait(max(0.0, next_s - time.monotonic()))
            if stop.is_set():
                break
            self.scrape("during", level)
            n_rounds += 1
            next_s = max(next_s + interval_s, time.monotonic())
        return n_rounds

    def idle_check(
        self,
        engine: str | None,
        *,
        version: str | None = None,
        interval_s: float,
        limit_s: float,
        level: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Idle:
        """Wait for three scrapes in a row with the same counters, ``limit_s`` at the longest.

        A URL without any series of the engine's (a router's own) shows nothing and is left out.
        """
        adapter = adapter_for(engine, version)
        if adapter is None:
            return Idle(proven=False, n_rounds=0, seen=f"no reader of the counters of {engine or 'this server'}")
        if not self.urls:
            return Idle(proven=False, n_rounds=0, seen="no metrics URL")
        end_s = time.monotonic() + limit_s
        n_rounds = n_equal = 0
        last: list[Any] | None = None
        while True:
            records = self.scrape("idle-check", level)
            n_rounds += 1
            keys, doing = _at_rest(records, adapter)
            n_equal = n_equal + 1 if keys is not None and keys == last else int(keys is not None)
            last = keys
            if n_equal >= EQUAL_SCRAPES:
                return Idle(proven=True, n_rounds=n_rounds, seen=f"{n_equal} equal scrapes in a row")
            if any(record.http_status in _NEVER_COMES or _is_a_page(record) for record in records):
                return Idle(proven=False, n_rounds=n_rounds, seen=doing or "no metrics")
            if time.monotonic() + interval_s > end_s:
                seen = doing or "the counters kept moving"
                return Idle(proven=False, n_rounds=n_rounds, seen=f"not at rest within {limit_s:g} s: {seen}")
            sleep(interval_s)


def _is_a_page(record: Scrape) -> bool:
    """A web page where metrics were looked for: waiting will not turn it into them."""
    kind = next((value for name, value in record.headers.items() if name.lower() == "content-type"), "")
    return record.http_status == 200 and kind.lower().startswith(("text/html", "application/xhtml"))


def _at_rest(records: Sequence[Scrape], adapter: Adapter) -> tuple[list[Any] | None, str | None]:
    """What must be equal in the next round; None, with the reason, when this round shows nothing."""
    keys = []
    for record in records:
        why = usable(record)
        if why is None:
            try:
                snapshot = read_snapshot(adapter, record.body or "", record.headers)
            except ExpositionError as error:
                why = str(error)
            else:
                if speaks(adapter, snapshot.exposition):
                    keys.append(idle_key(adapter, snapshot))
        if why is not None:
            return None, f"{record.url}: {why}"
    if not keys:
        return None, f"no URL shows any series {adapter.prefix}*"
    return keys, None
