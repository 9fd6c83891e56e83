"""Ask a running server what it is: every provenance endpoint once, the bodies kept, and what they amount to.

For ``python -m infra probe URL``, and for a run before its first request.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evidence.redact import redact_body
from infra.engines.identify import PATHS, Answer, EngineFacts, identify, request_extras
from infra.fetch import Fetched, bare_url, fetch
from infra.wire.exposition import METRICS_ACCEPT


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeReport:
    """``fetched`` by name of PATHS; ``facts`` is what they amount to."""

    base_url: str
    fetched: Mapping[str, Fetched]
    facts: EngineFacts

    @property
    def reachable(self) -> bool:
        """Whether anything answered at all."""
        return any(got.status is not None for got in self.fetched.values())

    def bodies(self) -> dict[str, bytes]:
        """For a run's ``server/`` folder: file name to body, secrets struck out, what was not answered left out."""
        kept: dict[str, bytes] = {}
        for name, got in self.fetched.items():
            if got.status == 200 and got.body:
                kept[f"{name}.{'prom' if name == 'metrics' else 'json'}"] = redact_body(got.body)[0]
        return kept


def probe(
    base_url: str,
    *,
    timeout_s: float = 10.0,
    headers: Mapping[str, str] | None = None,
    metrics_url: str | None = None,
) -> ProbeReport:
    """Fetch every path of PATHS below ``base_url`` (a prefix, no ``/v1``). A server's fault raises nothing.

    When nobody listens at the first path, the rest is not tried.
    """
    base = base_url.rstrip("/")
    fetched: dict[str, Fetched] = {}
    for name, path in PATHS.items():
        url = metrics_url if name == "metrics" and metrics_url else base + path
        accept = METRICS_ACCEPT if name == "metrics" else "application/json"
        fetched[name] = fetch(url, timeout_s=timeout_s, headers={"Accept": accept, **(headers or {})})
        if fetched[name].status is None and len(fetched) == 1:
            break
    return ProbeReport(base_url=bare_url(base), fetched=fetched, facts=identify(answers(fetched)))


def answers(fetched: Mapping[str, Fetched]) -> dict[str, Answer]:
    """For the judge: a torn body counts as none."""
    return {
        name: Answer(
            status=got.status,
            headers=got.headers,
            body=got.body if got.complete or got.status != 200 else None,
            error=got.error if got.status is None or got.status == 200 else None,
        )
        for name, got in fetched.items()
    }


def as_json(report: ProbeReport) -> dict[str, Any]:
    """One object for ``--json``; null stands beside its reason."""
    facts = report.facts
    return {
        "url": report.base_url,
        "reachable": report.reachable,
        "engine": None if facts.engine == "unknown" else facts.engine,
        "why_engine": facts.why_engine,
        "version": facts.version,
        "why_version": facts.why_version,
        "models": list(facts.models),
        "model_meta": dict(facts.model_meta),
        "speculative": facts.speculative,
        "why_speculative": facts.why_speculative,
        "speculative_mode": facts.speculative_mode,
        "adapter": facts.adapter,
        "request_extra": request_extras(facts.engine, cold_per_request=False),
        "offers": list(facts.offers),
        "lacks": list(facts.lacks),
        "endpoints": {
            name: {"url": got.url, "http_status": got.status, "error": got.error}
            for name, got in report.fetched.items()
        },
    }


def main_lines(report: ProbeReport) -> list[str]:
    """The printed form."""
    facts = report.facts
    speculates = {True: "yes", False: "no", None: "not known"}[facts.speculative]
    mode = f" {facts.speculative_mode}" if facts.speculative_mode else ""
    rows = [
        ("server", report.base_url),
        ("engine", f"{facts.engine} ({facts.why_engine})"),
        ("version", facts.version or f"- ({facts.why_version})"),
        ("models", ", ".join(facts.models) or "- (/v1/models names none)"),
        ("speculates", f"{speculates}{mode} ({facts.why_speculative})"),
        *[(name, f"{got.url}: {got.error or 'HTTP 200'}") for name, got in report.fetched.items()],
        *[("offers", offer) for offer in facts.offers],
        *[("lacks", lack) for lack in facts.lacks],
    ]
    if not report.reachable:
        rows = [rows[0], *[("", f"{got.url}: {got.error}") for got in report.fetched.values()]]
        rows.append(("", "nothing answered: check the address, and that the server is up"))
    return [f"{name:<12}{text}".rstrip() for name, text in rows]
