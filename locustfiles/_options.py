"""The options every locustfile shares, on the command line and as fields of the web UI; checked first."""

import json
import re
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from evidence.redact import redact_text
from infra.target import Target, TargetError
from locustfiles._offered import offered_arms, offered_scenarios

if TYPE_CHECKING:  # importing it patches the process, which is the locustfile's to do
    from locust.argument_parser import LocustArgumentParser


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
    no_profile: bool = False
    calibration: Path | None = None  # None: the one that fits best, or none where ``cite_calibration`` is off
    cite_calibration: bool = True
    shards: str = "ship"  # where workers' lines go: "ship" to the master, "keep" on the worker, else a folder or URL


def add_options(parser: "LocustArgumentParser") -> None:
    group = parser.add_argument_group("Evidence", "What to run, against what, and where the evidence goes")

    def add(*names: str, is_required: bool = False, **how: Any) -> None:
        """To the group, and a field of the web UI: Locust makes fields of what is added to the parser itself."""
        action: Any = group.add_argument(*names, **how)
        action.include_in_web_ui = True
        action.is_required = is_required

    add(
        "--scenario",
        default="",
        metavar="FILE",
        choices=offered_scenarios(),
        is_required=True,
        help="required: scenario to run (scenarios/*.toml)",
    )
    add(
        "--arm",
        default="",
        metavar="NAME",
        choices=offered_arms(),
        help="required, or --label: recipe the server was launched from (infra/arms)",
    )
    add("--label", default="", metavar="TEXT", help="required, or --arm: name for a server without a recipe")
    add("--run-dir", default="runs", metavar="DIR", help="where the run's folder lands")
    add("--model", default="", metavar="NAME", help="model to ask for (default: the server's only one)")
    add(
        "--metrics-url",
        action="append",
        default=None,
        metavar="URL",
        help="a /metrics endpoint of the server; repeatable (default: host, its path prefix, /metrics)",
    )
    add(
        "--prometheus-url",
        default="",
        metavar="URL",
        help="a Prometheus that scrapes the server: asked for the run's window",
    )
    add("--client-metrics-port", default="", metavar="PORT", help="serve this client's live metrics on loopback")
    add("--transport", default="wire", choices=["wire", "openai"], help="what times the stream")
    add("--extra-body", default="", metavar="JSON", help="fields added to every request body")
    # Locust knows a secret field on the parser only, not in a group.
    parser.add_argument(
        "--header",
        action="append",
        default=None,
        metavar="NAME=VALUE",
        is_secret=True,
        help="header added to every request; repeatable; never written into the evidence",
    )
    add(
        "--calibration",
        default="",
        metavar="FILE",
        help='calibration of this client to cite, or "none" (default: the best fit in calibrations/ beside the runs)',
    )
    add("--passes", default=1, type=int, metavar="N", help="passes over the mix, after one warm-up")
    add("--seed", default="", metavar="N", help="order of the prompts, in place of the scenario's seed")
    add("--no-profile", action="store_true", help="leave out the scenario's profiler window: this run is to be timed")
    add(
        "--shards",
        default="ship",
        metavar="ship|keep|PLACE",
        help="where the lines of many workers go: to the master, nowhere, or a folder or URL; these seal digests",
    )
    add("--note", default="", metavar="TEXT", help="a note kept in the manifest")


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
    number: int | None
    try:
        number = int(str(value))
    except ValueError:
        number = None
    if number is None or not least <= number < limit:
        raise UsageError(f"{option} {str(value)[:40]!r} is not a whole number from {least} to below {limit}")
    return number


def own_headers(parsed: Namespace) -> dict[str, str]:
    """``--header`` of this process: all that a worker takes from its own command line. Raises UsageError."""
    return _headers(_as_list(parsed.header))


def _shards(text: str) -> str:
    """A place that may stand in the evidence, in messages and in a process's arguments: so without credentials."""
    if "://" in text and (redact_text(text) != text or "@" in text.split("://", 1)[1].split("/", 1)[0]):
        what = f"--shards {redact_text(text)}: this URL holds credentials, and where lines are kept goes on record"
        raise UsageError(
            f"{what}: leave them out and give them in the environment, or in the store's own configuration"
        )
    if text in ("ship", "keep") or "/" in text:
        return text
    raise UsageError(f"--shards {text!r} is none: give ship, keep, a folder (with a /) or a URL")


def _transport(name: str) -> Literal["wire", "openai"]:
    """The web form passes the command line's own check by."""
    if name not in ("wire", "openai"):
        raise UsageError(f"--transport {name[:40]!r} is none: give wire or openai")
    return "openai" if name == "openai" else "wire"


def _refuse_null_bytes(parsed: Namespace) -> None:
    """No path, name or URL has one, and the system's calls raise at it."""
    for name in ("scenario", "arm", "label", "run_dir", "model", "calibration", "shards", "note"):
        if "\0" in (getattr(parsed, name) or ""):
            raise UsageError(f"--{name.replace('_', '-')} holds a null byte: type it without")


def read_options(parsed: Namespace, host: str | None) -> Options:
    """Options from Locust's parsed command line.

    Raises UsageError naming the option, its value and what to do.
    """
    _refuse_null_bytes(parsed)
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
        transport=_transport(parsed.transport),
        extra_body=_extra_body(parsed.extra_body),
        headers=own_headers(parsed),
        note=parsed.note or None,
        prometheus_url=_url_or_none("--prometheus-url", parsed.prometheus_url),
        client_metrics_port=(
            _whole_number("--client-metrics-port", parsed.client_metrics_port, 1, 65536)
            if parsed.client_metrics_port != ""
            else None
        ),
        shards=_shards(parsed.shards),
        passes=_whole_number("--passes", parsed.passes, 1, 1001),
        seed=_whole_number("--seed", parsed.seed, 0, 2**63) if parsed.seed != "" else None,
        no_profile=bool(parsed.no_profile),
        calibration=Path(parsed.calibration) if parsed.calibration not in ("", "none") else None,
        cite_calibration=parsed.calibration != "none",
    )
