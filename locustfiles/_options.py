"""The options every locustfile shares, on the command line and as fields of the web UI; checked first."""

import json
import re
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from locust.argument_parser import LocustArgumentParser

from infra.target import Target, TargetError


class UsageError(Exception):
    """What was typed cannot be run; the message ends with what to do. Exit code 2."""


@dataclass(frozen=True, kw_only=True)
class Options:
    host: str
    scenario: Path
    arm: str | None
    label: str | None
    run_dir: Path
    model: str | None
    metrics_urls: tuple[str, ...]
    transport: Literal["wire", "openai"]
    extra_body: dict[str, Any]
    headers: dict[str, str]
    note: str | None
    prometheus_url: str | None
    client_metrics_port: int | None
    passes: int
    seed: int | None


def add_options(parser: LocustArgumentParser) -> None:
    group = parser.add_argument_group("Evidence", "What to run, against what, and where the evidence goes")
    group.add_argument("--scenario", default="", metavar="FILE", help="scenario to run (scenarios/*.toml)")
    group.add_argument("--arm", default="", metavar="NAME", help="recipe the server was launched from (infra/arms)")
    group.add_argument("--label", default="", metavar="TEXT", help="name for a server without a recipe")
    group.add_argument("--run-dir", default="runs", metavar="DIR", help="where the run's folder lands")
    group.add_argument("--model", default="", metavar="NAME", help="model to ask for (default: the server's only one)")
    group.add_argument(
        "--metrics-url",
        action="append",
        default=None,
        metavar="URL",
        help="a /metrics endpoint of the server; repeatable (default: host, its path prefix, /metrics)",
    )
    group.add_argument(
        "--prometheus-url",
        default="",
        metavar="URL",
        help="a Prometheus that scrapes the server: asked for the run's window",
    )
    group.add_argument(
        "--client-metrics-port", default="", metavar="PORT", help="serve this client's live metrics on loopback"
    )
    group.add_argument("--transport", default="wire", choices=["wire", "openai"], help="what times the stream")
    group.add_argument("--extra-body", default="", metavar="JSON", help="fields added to every request body")
    # Locust knows a secret field on the parser only, not in a group.
    parser.add_argument(
        "--header",
        action="append",
        default=None,
        metavar="NAME=VALUE",
        is_secret=True,
        help="header added to every request; repeatable; never written into the evidence",
    )
    group.add_argument("--passes", default=1, type=int, metavar="N", help="passes over the mix, after one warm-up")
    group.add_argument("--seed", default="", metavar="N", help="order of the prompts, in place of the scenario's seed")
    group.add_argument("--note", default="", metavar="TEXT", help="a note kept in the manifest")


def _as_list(value: str | list[str] | None) -> list[str]:
    if value is None or value == "":
        return []
    return [value] if isinstance(value, str) else [item for item in value if item]


def _checked_host(host: str | None) -> str:
    if not host:
        raise UsageError("--host is missing: give the server's base URL, e.g. --host http://127.0.0.1:8000")
    try:
        Target.parse(host)
    except TargetError as error:
        raise UsageError(f"--host: {error}") from None
    return host.rstrip("/")


def _headers(values: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for value in values:
        name, equals, content = value.partition("=")
        usable = bool(equals) and content == content.strip() and content.isprintable()
        if not usable or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise UsageError("--header must be NAME=VALUE on one line, with a valid header name before the first '='")
        if name.lower() in {"host", "content-length", "transfer-encoding", "connection", "accept-encoding"}:
            raise UsageError(f"--header {name}: this header is set by the client itself, leave it out")
        headers[name] = content
    return headers


RESERVED_BODY_FIELDS = {
    *("messages", "prompt", "stream", "stream_options", "model", "max_tokens", "max_completion_tokens"),
    *("temperature", "seed", "n", "ignore_eos", "cache_prompt", "timings_per_token"),
}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _extra_body(text: str) -> dict[str, Any]:
    if not text:
        return {}
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--extra-body is not JSON ({error}): give one JSON object") from None
    if not isinstance(value, dict):
        raise UsageError(f"--extra-body is a JSON {type(value).__name__}: give one JSON object")
    taken = sorted(RESERVED_BODY_FIELDS & set(value))
    if taken:
        raise UsageError(f"--extra-body sets {', '.join(taken)}: these come from the plan, change the scenario instead")
    return value


def _url_or_none(option: str, url: str) -> str | None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if url and not usable:
        raise UsageError(f"{option} {url!r} is not a URL: write it as http://HOST:PORT/PATH")
    return url or None


def _whole_number(option: str, value: object, least: int, limit: int) -> int:
    try:
        number = int(str(value))
    except ValueError:
        number = least - 1
    if not least <= number < limit:
        raise UsageError(f"{option} {str(value)[:40]!r} is not a whole number from {least} to below {limit}")
    return number


def read_options(parsed: Namespace, host: str | None) -> Options:
    """Options from Locust's parsed command line.

    Raises UsageError naming the option, its value and what to do.
    """
    if not parsed.scenario:
        raise UsageError("--scenario is missing: name a file, e.g. --scenario scenarios/sequential.toml")
    if bool(parsed.arm) == bool(parsed.label):
        raise UsageError("give exactly one of --arm NAME (a recipe in infra/arms) and --label TEXT (any other server)")
    metrics = _as_list(parsed.metrics_url)
    for url in metrics:
        _url_or_none("--metrics-url", url)
    checked_host = _checked_host(host)
    return Options(
        host=checked_host,
        scenario=Path(parsed.scenario),
        arm=parsed.arm or None,
        label=parsed.label or None,
        run_dir=Path(parsed.run_dir or "runs"),
        model=parsed.model or None,
        metrics_urls=tuple(metrics) or (checked_host + "/metrics",),
        transport=parsed.transport,
        extra_body=_extra_body(parsed.extra_body),
        headers=_headers(_as_list(parsed.header)),
        note=parsed.note or None,
        prometheus_url=_url_or_none("--prometheus-url", parsed.prometheus_url),
        client_metrics_port=(
            _whole_number("--client-metrics-port", parsed.client_metrics_port, 1, 65536)
            if parsed.client_metrics_port != ""
            else None
        ),
        passes=_whole_number("--passes", parsed.passes, 1, 1001),
        seed=_whole_number("--seed", parsed.seed, 0, 2**63) if parsed.seed != "" else None,
    )
