"""The client's side of an exported run: the load generator's own series as if scraped, and each request by itself."""

from collections.abc import Iterator, Mapping

from analysis.openmetrics_text import SampleBook
from evidence.reading import Run
from evidence.records import Request
from infra.wire.client_records import ended, health_samples, info_labels, run_labels
from infra.wire.client_series import FAMILIES, IN_FLIGHT, INFO, READ_DELAY, ClientSample, Tally

MOST_INSTANTS = 3600  # a longer run is sampled less often


def add_client(book: SampleBook, run: Run) -> None:
    """The load generator's series at each instant of a grid, as a Prometheus would have scraped them."""
    added = {**run_labels(run.manifest), "job": "client", "instance": "export"}
    starts = sorted(one.started_at_unix_s for one in run.started)
    ends = _ends(run)
    if not starts:
        return
    tally, n_started, n_ended = Tally(), 0, 0
    delays: dict[int, float] = {}
    for line in run.plan:
        tally.expect(str(line.get("domain", "")), line.get("level"))
    for at_s in _grid(starts[0], max(starts[-1], ends[-1][0] if ends else 0.0), _interval_s(run)):
        while n_started < len(starts) and starts[n_started] <= at_s:
            n_started += 1
        while n_ended < len(ends) and ends[n_ended][0] <= at_s:
            one = ends[n_ended][1]
            tally.add(ended(one))
            if one.kernel_to_user_max_s is not None:
                delays[one.worker] = one.kernel_to_user_max_s
            n_ended += 1
        in_flight = ClientSample(IN_FLIGHT, IN_FLIGHT, {}, max(0, n_started - n_ended))
        info = ClientSample(INFO, INFO + "_info", info_labels(run.manifest), 1)
        late = [ClientSample(READ_DELAY, READ_DELAY, {"worker": str(n)}, delay_s) for n, delay_s in delays.items()]
        for sample in (*tally.samples(), *late, in_flight, info):
            _add_own(book, sample, added, at_s)
    for worker, records in run.health.items():
        offset_s = _wall_offset_s(run, worker)
        for record in records:
            for sample in health_samples(worker, record):
                _add_own(book, sample, added, record.at_monotonic_s + offset_s)


def _add_own(book: SampleBook, sample: ClientSample, added: Mapping[str, str], at_s: float) -> None:
    kind, words = FAMILIES[sample.family]
    labels = {**sample.labels, **added}
    book.add(
        family=sample.family,
        kind=kind,
        name=sample.name,
        labels=labels,
        at_unix_s=at_s,
        value=sample.value,
        words=words,
    )


def add_requests(book: SampleBook, run: Run) -> None:
    """Each request once, at its end; what is not known of it has no sample."""
    added = {**run_labels(run.manifest), "job": "client", "instance": "export"}
    for at_s, one in _ends(run):
        told = ended(one)
        labels = {"domain": one.domain, "level": one.level or "", "phase": one.phase, "outcome": one.outcome}
        labels |= {"plan_id": one.plan_id, "prompt_id": one.prompt_id, "worker": str(one.worker), **added}
        values = {
            "ttft_seconds": told.ttft_s,
            "tpot_seconds": told.tpot_s,
            "e2e_seconds": told.e2e_s,
            "output_tokens": one.n_completion_tokens,
            "prompt_tokens": one.n_prompt_tokens,
        }
        for name, value in values.items():
            if value is not None:
                name = f"llm_request_{name}"
                words = "Of one request, at its end."
                book.add(family=name, kind="gauge", name=name, labels=labels, at_unix_s=at_s, value=value, words=words)


def _ends(run: Run) -> list[tuple[float, Request]]:
    """Each request with the instant it ended on the wall clock; one that was never sent ended when it started."""
    starts = {(one.worker, one.sequence): one.started_at_unix_s for one in run.started}
    found = []
    for one in run.requests:
        sent_s = one.sent_at_unix_s if one.sent_at_unix_s is not None else starts.get((one.worker, one.sequence))
        if sent_s is not None:
            took_s = 0.0 if one.sent_at_unix_s is None else one.took_s  # over where it began, if it was never sent
            found.append((sent_s + took_s, one))
    return sorted(found, key=lambda pair: pair[0])


def _interval_s(run: Run) -> float:
    scenario = run.manifest.scenario if isinstance(run.manifest.scenario, Mapping) else {}
    telemetry = scenario.get("telemetry")
    told = telemetry.get("scrape_interval_s") if isinstance(telemetry, Mapping) else None
    return max(1.0, float(told)) if isinstance(told, int | float) else 1.0


def _grid(first_s: float, last_s: float, step_s: float) -> Iterator[float]:
    step_s = max(step_s, (last_s - first_s) / MOST_INSTANTS)
    at_s = first_s - step_s
    while at_s < last_s + 2 * step_s:
        yield at_s
        at_s += step_s


def _wall_offset_s(run: Run, worker: int) -> float:
    """Wall clock minus a worker's monotonic clock, by its own requests; by the manifest where it has none."""
    for one in run.requests:
        if one.worker == worker and one.sent_at_unix_s is not None and one.sent_at_monotonic_s is not None:
            return one.sent_at_unix_s - one.sent_at_monotonic_s
    clock = run.manifest.clock
    return clock.get("unix_s", 0.0) - clock.get("monotonic_s", 0.0)
