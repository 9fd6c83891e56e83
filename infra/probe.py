"""Ask a running server what it is: every provenance endpoint once, the bodies kept, and what they amount to.

For ``python -m infra probe URL``, and for a run before its first request.
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evidence.redact import redact_body
from infra import asked
from infra.asked import Asked, ask
from infra.engines.identify import MORE_PATHS, PATHS, Answer, EngineFacts, identify, request_extras
from infra.fetch import Fetched, bare_url, fetch, headers_for
from infra.target import Target
from infra.wire.exposition import METRICS_ACCEPT

KEY_WANTED = "every address wants a key: give it in OPENAI_API_KEY, or with --header NAME=VALUE"
_EXPOSITIONS = frozenset({"metrics", "trtllm_metrics"})


class ProbeUsageError(ValueError):
    """An option that cannot be used. The message ends with what to write."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeReport:
    """``fetched`` by name of PATHS; ``facts`` is what they amount to. ``asked`` where a request was sent too."""

    base_url: str
    fetched: Mapping[str, Fetched]
    facts: EngineFacts
    asked: Asked | None = None

    @property
    def reachable(self) -> bool:
        """Whether anything answered at all."""
        return any(got.status is not None for got in self.fetched.values())

    @property
    def key_wanted(self) -> bool:
        """Whether every answer was a refusal for want of a key: nothing was learnt of the server."""
        return self.reachable and all(got.status in (None, 401, 403) for got in self.fetched.values())

    def bodies(self) -> dict[str, bytes]:
        """For a run's ``server/`` folder: file name to body, secrets struck out, what was not answered left out."""
        kept: dict[str, bytes] = {}
        for name, got in self.fetched.items():
            if got.status == 200 and got.body:
                kept[f"{name}.{'prom' if name in _EXPOSITIONS else 'json'}"] = redact_body(got.body)[0]
        return kept


def probe(
    base_url: str,
    *,
    timeout_s: float = 10.0,
    headers: Mapping[str, str] | None = None,
    metrics_url: str | None = None,
) -> ProbeReport:
    """Fetch every path of PATHS below ``base_url`` (a prefix, no ``/v1``). A server's fault raises nothing.

    When nobody listens at the first path, the rest is not tried. Where the engine or its metrics stay open, the
    addresses of MORE_PATHS are tried too.
    """
    base = base_url.rstrip("/")
    fetched: dict[str, Fetched] = {}

    def get(name: str, path: str) -> None:
        url = metrics_url if name == "metrics" and metrics_url else base + path
        accept = METRICS_ACCEPT if name in _EXPOSITIONS else "application/json"
        sent = headers_for(url, {"Accept": accept, **(headers or {})}, base)
        fetched[name] = fetch(url, timeout_s=timeout_s, headers=sent)

    for name, path in PATHS.items():
        get(name, path)
        if fetched[name].status is None and len(fetched) == 1:
            break
    facts = identify(answers(fetched), host=base)
    if len(fetched) > 1 and (facts.engine == "unknown" or facts.adapter is None):
        for name, path in MORE_PATHS.items():
            get(name, path)
        facts = identify(answers(fetched), host=base)
    if facts.engine == "sglang":  # its architecture stands nowhere else
        get("model_info", "/model_info")
    return ProbeReport(base_url=bare_url(base), fetched=fetched, facts=facts)


def answers(fetched: Mapping[str, Fetched]) -> dict[str, Answer]:
    """For the judge: a torn body counts as none."""
    return {
        name: Answer(
            status=got.status,
            headers=got.headers,
            body=got.body if got.complete or got.status != 200 else None,
            error=got.error,
        )
        for name, got in fetched.items()
    }


def as_json(report: ProbeReport) -> dict[str, Any]:
    """One object for ``--json``; null stands beside its reason."""
    facts = report.facts
    front = facts.front
    return {
        "url": report.base_url,
        "reachable": report.reachable,
        "engine": None if facts.engine == "unknown" else facts.engine,
        "why_engine": facts.why_engine,
        "version": facts.version,
        "why_version": facts.why_version,
        "front": None
        if front is None
        else {"name": front.name, "kind": front.kind, "seen": front.seen, "does": front.does, "remedy": front.remedy},
        "models": list(facts.models),
        "model_meta": dict(facts.model_meta),
        "speculative": facts.speculative,
        "why_speculative": facts.why_speculative,
        "speculative_mode": facts.speculative_mode,
        "adapter": facts.adapter,
        "metrics_at": facts.metrics_at,
        "request_extra": request_extras(facts.engine, cold_per_request=False, version=facts.version),
        "offers": list(facts.offers),
        "lacks": list(facts.lacks),
        "missing": [{"what": lack.what, "why": lack.why, "supply": lack.supply} for lack in facts.missing],
        "asked": asked.as_json(report.asked),
        "endpoints": {
            name: {"url": got.url, "http_status": got.status, "error": got.error}
            for name, got in report.fetched.items()
        },
    }


def main_lines(report: ProbeReport) -> list[str]:
    """The printed form."""
    facts = report.facts
    if not report.reachable:
        rows = [("server", report.base_url), *[("", f"{got.url}: {got.error}") for got in report.fetched.values()]]
        rows.append(("", "nothing answered: check the address, and that the server is up"))
        return _aligned(rows)
    speculates = {True: "yes", False: "no", None: "not known"}[facts.speculative]
    mode = f" {facts.speculative_mode}" if facts.speculative_mode else ""
    rows = [
        ("server", report.base_url),
        *([("refused", KEY_WANTED)] if report.key_wanted else []),
        ("this is", _in_plain_words(facts)),
        ("engine", f"{facts.engine} ({facts.why_engine})"),
        ("version", facts.version or f"- ({facts.why_version})"),
        ("models", ", ".join(facts.models) or "- (/v1/models names none)"),
        ("speculates", f"{speculates}{mode} ({facts.why_speculative})"),
    ]
    if facts.front is not None:
        rows += [("front", f"{facts.front.name}, by {facts.front.seen}: {facts.front.does}")]
        rows += [("", facts.front.remedy)]
    rows += [("offers", offer) for offer in facts.offers]
    for lack in facts.missing:
        rows.append(("lacks", f"{lack.what}: {lack.why}"))
        rows += [("", f"-> {lack.supply}")] if lack.supply else []
    if report.asked is not None:
        rows += [("answered", offer) for offer in report.asked.offers]
        rows += [("answer lacks", str(lack)) for lack in report.asked.missing]
    rows += [("asked", f"{got.url}: {got.error or 'HTTP 200'}") for got in report.fetched.values()]
    return _aligned(rows)


def _in_plain_words(facts: EngineFacts) -> str:
    engine = "an engine that is not known here" if facts.engine == "unknown" else f"a {facts.engine} server"
    if facts.front is None:
        return engine if facts.engine != "unknown" else f"{engine}, or a front that hides it"
    if facts.front.kind == "hosted API":
        return "a hosted API without metrics"
    before = "an engine that it hides" if facts.engine == "unknown" else f"a {facts.engine} server"
    return f"{facts.front.name} ({facts.front.kind}), in front of {before}"


def _aligned(rows: Sequence[tuple[str, str]]) -> list[str]:
    return [f"{name:<14}{text}".rstrip() for name, text in rows]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``python -m infra probe``."""
    parser.add_argument("url", metavar="URL", help="without /v1")
    parser.add_argument("--metrics-url", metavar="URL", help="where its metrics are (default: URL/metrics)")
    parser.add_argument("--header", metavar="NAME=VALUE", action="append", default=[], help="sent with every request")
    parser.add_argument(
        "--ask", action="store_true", help="send one request of 32 tokens too, and see what its answer carries"
    )
    parser.add_argument("--model", help="for --ask, where the server serves several")
    parser.add_argument("--timeout-s", type=float, default=10.0, help="for each answer (%(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def command(options: argparse.Namespace) -> int:
    """``python -m infra probe``: 0 something answered, 1 nothing did, or refused all without a key, 2 a wrong
    option. Raises TargetError.
    """
    Target.parse(options.url)
    try:
        report = _report(options)
    except ProbeUsageError as error:
        print(f"infra: {error}", file=sys.stderr)  # noqa: T201  # its message
        return 2
    print(json.dumps(as_json(report)) if options.json else "\n".join(main_lines(report)))  # noqa: T201  # its output
    return 0 if report.reachable and not report.key_wanted else 1


def _report(options: argparse.Namespace) -> ProbeReport:
    headers = _headers(options.header)
    report = probe(options.url, timeout_s=options.timeout_s, headers=headers, metrics_url=options.metrics_url)
    if not options.ask or not report.reachable:
        return report
    model = options.model or (report.facts.models[0] if len(report.facts.models) == 1 else None)
    if model is None:
        raise ProbeUsageError(f"--ask: the server names {len(report.facts.models)} models; add --model NAME")
    told = ask(options.url, report.facts, model, headers=headers, timeout_s=max(options.timeout_s, 60.0))
    return replace(report, asked=told)


def _headers(given: Sequence[str]) -> dict[str, str]:
    key = os.environ.get("OPENAI_API_KEY")
    found = {"Authorization": f"Bearer {key}"} if key else {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name.strip():
            raise ProbeUsageError(f"--header {one!r}: write NAME=VALUE")
        found[name.strip()] = value
    return found
