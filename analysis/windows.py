"""From scrapes to windows: one for each metrics URL (and level), opened and closed at rest, read by the adapter.

Several URLs are several servers that share the load, and their counts are added. An address without any series of the
engine (a router's own) is left out and said; two addresses that answer for one server are taken once and said. One URL
behind which several processes answer has no window.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.facts import Finding
from analysis.request_checks import Check, not_observable
from evidence.records import Scrape
from infra.engines.adapter import Adapter, idle_key, read_snapshot, speaks
from infra.engines.labels import values_of
from infra.engines.readings import Measured
from infra.engines.window import BrokenCode, Snapshot, Window, same_server
from infra.wire.exposition import ExpositionError

EQUAL_SCRAPES = 3


Read = tuple[Scrape, Snapshot | str]  # a scrape, and what it says or why it cannot be read


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened:
    """The window of one server (at one level, where levels were scraped apart)."""

    url: str
    level: str | None
    window: Window


@dataclass(frozen=True, kw_only=True, slots=True)
class Windows:
    """``opened`` is () with the reason in ``why``; ``notes`` say what was added, left out or taken once."""

    opened: tuple[Opened, ...]
    why: str | None
    notes: tuple[str, ...] = ()

    def all(self) -> tuple[Window, ...]:
        return tuple(one.window for one in self.opened)

    def at(self, level: str | None) -> tuple[Window, ...]:
        """Those of one level; () where levels were not scraped apart."""
        return tuple(one.window for one in self.opened if one.level == level)


def read_all(scrapes: Sequence[Scrape], adapter: Adapter | None, engine: str | None) -> tuple[Read, ...]:
    """Every scrape once: reading is what takes time. Of those between the ends no histogram's buckets are read."""
    if adapter is None:
        return tuple((s, s.error or f"no reader of the series of {engine or 'this server'}") for s in scrapes)
    return tuple((scrape, read_scrape(scrape, adapter, thin=scrape.role == "during")) for scrape in scrapes)


def open_windows(reads: Sequence[Read], adapter: Adapter | None) -> Windows:
    """A window for each server, or why its counters cannot be read; a broken window is one and says so."""
    urls = list(dict.fromkeys(scrape.url for scrape, _ in reads))
    if not urls:
        return Windows(opened=(), why="nothing was scraped")
    if adapter is None:
        said = [str(read) for scrape, read in reads if scrape.role == "before"] or [str(reads[0][1])]
        return Windows(opened=(), why=said[0])
    opened: list[Opened] = []
    notes: list[str] = []
    for url in urls:
        own = [read for read in reads if read[0].url == url]
        for level in dict.fromkeys(s.level for s, _ in own if s.role == "before") or [None]:
            found = _window([read for read in own if read[0].level == level or read[0].role == "during"], adapter)
            if isinstance(found, str):
                return Windows(opened=(), why=f"{url}: {found}")
            twin = next((o for o in opened if o.level == level and same_server(o.window, found)), None)
            if not speaks(adapter, found.after.exposition):
                notes.append(
                    f"{url} shows no series {adapter.prefix}*: it is left out (a router's or proxy's own metrics)"
                )
            elif twin is not None:
                notes.append(f"{url} answers for the same server as {twin.url}: taken once")
            else:
                opened.append(Opened(url=url, level=level, window=found))
    if not opened:
        return Windows(opened=(), why=f"no URL shows any series {adapter.prefix}*", notes=tuple(dict.fromkeys(notes)))
    return Windows(opened=tuple(opened), why=None, notes=tuple(dict.fromkeys([*notes, *_mixture(opened, adapter)])))


def read_scrape(scrape: Scrape, adapter: Adapter, *, thin: bool = False) -> Snapshot | str:
    """The scrape as read, or why it cannot be. ``thin`` leaves out the buckets of histograms."""
    if scrape.error is not None or scrape.body is None:
        return scrape.error or "no body"
    if not scrape.complete:
        return "nothing shows that the body is whole"
    body = scrape.body
    if thin:
        body = "\n".join(line for line in body.split("\n") if "_bucket{" not in line)
    try:
        return read_snapshot(adapter, body, scrape.headers)
    except ExpositionError as error:
        return str(error)


def broken_findings(windows: Sequence[Window]) -> tuple[Finding, ...]:
    """What makes a window none, once for each kind."""
    found: dict[BrokenCode, Finding] = {}
    for window in windows:
        for broken in window.broken:
            if broken.code in found:
                continue
            if broken.code == "restart":
                found[broken.code] = Finding(code="restart", scope="run", seen=broken.seen)
            elif broken.code == "not_a_counter":
                found[broken.code] = Finding(code="check_failed", scope="acceptance", seen=broken.seen)
            else:
                found[broken.code] = Finding(code="several_servers", scope="run", seen=broken.seen)
    return tuple(found.values())


def at_rest(reads: Sequence[Read], adapter: Adapter | None) -> Check:
    """The last three idle-check scrapes and the one that opens each window show the same counters, at each URL.

    A level after another one was at rest from the scrape that closed the one before it until its own first.
    """
    name = "at rest before the window"
    if adapter is None:
        return not_observable(name, str(reads[0][1]) if reads else "nothing was scraped")
    judged: set[str] = set()
    n_windows = 0
    for url in dict.fromkeys(scrape.url for scrape, _ in reads):
        own = [read for read in reads if read[0].url == url]
        openings = {scrape.level: i for i, (scrape, _) in enumerate(own) if scrape.role == "before"}
        for opening in openings.values() or [0]:
            closed = max((i for i in range(opening) if own[i][0].role == "after"), default=None)
            before = own[:opening] if closed is None else own[closed:opening]
            idle = [read for read in before if read[0].role in ("idle-check", "after")][-EQUAL_SCRAPES:]
            if closed is not None and own[closed] not in idle:
                idle = [own[closed], *idle]
            if not openings or (closed is None and len(idle) < EQUAL_SCRAPES):
                return not_observable(name, f"{url}: {len(idle)} idle-check scrapes before the window's first")
            shots = [read for _, read in (*idle, own[opening])]
            bad = next((shot for shot in shots if isinstance(shot, str)), None)
            if bad is not None:
                return not_observable(name, f"{url}: {bad}")
            known = [shot for shot in shots if isinstance(shot, Snapshot) and speaks(adapter, shot.exposition)]
            if any(idle_key(adapter, shot) != idle_key(adapter, known[0]) for shot in known):
                seen = f"{url}: the counters moved without a request of this client's"
                traffic = Finding(code="foreign_traffic", scope="run", seen=f"before the window {seen}")
                return Check(name=name, state="fail", seen=seen, finding=traffic)
            if known:
                judged.add(url)
                n_windows += 1
    if not judged:
        return not_observable(name, "nothing was scraped")
    of = "1 URL" if len(judged) == 1 else f"{len(judged)} URLs"
    at = "" if n_windows == len(judged) else f", before each of {n_windows} windows"
    return Check(name=name, state="pass", seen=f"{EQUAL_SCRAPES} equal scrapes and the window's first, {of}{at}")


def _window(reads: Sequence[Read], adapter: Adapter) -> Window | str:
    befores = [i for i, (scrape, _) in enumerate(reads) if scrape.role == "before"]
    afters = [i for i, (scrape, _) in enumerate(reads) if scrape.role == "after"]
    if befores and isinstance(said := reads[befores[-1]][1], str):
        return f"the scrape before the measured requests: {said}"
    if not befores or not afters:
        return f"no scrape {'before' if not befores else 'after'} the measured requests"
    first, last = befores[-1], afters[-1]
    if last < first:
        return "the last scrape before the measured requests comes after the one behind them"
    ends: list[Snapshot] = []
    for index in (first, last):
        scrape, read = reads[index]
        if isinstance(read, str):
            return f"the scrape {scrape.role} the measured requests: {read}"
        ends.append(read)
    between = [read for _, read in reads[first + 1 : last] if isinstance(read, Snapshot)]
    return adapter.window(ends[0], ends[1], between)


def _mixture(opened: Sequence[Opened], adapter: Adapter) -> list[str]:
    """What is added together, and where the parts are not alike."""
    urls = dict.fromkeys(one.url for one in opened)
    notes = [f"the counts of {len(urls)} servers are added: {', '.join(urls)}"] if len(urls) > 1 else []
    models = sorted(
        {model for one in opened for model in values_of(one.window.after.exposition, "model_name", adapter.prefix)}
    )
    if len(models) > 1:
        notes.append(
            f"a mixture: the series name {len(models)} models ({', '.join(models)}), and their counts are added"
        )
    limits = {adapter.draft_limit([one.window]) for one in opened}
    drafts = sorted(limit.value for limit in limits if isinstance(limit, Measured))
    if len(drafts) > 1:
        notes.append(f"a mixture: servers draft at most {', '.join(f'{n:g}' for n in drafts)} tokens a step")
    return notes
