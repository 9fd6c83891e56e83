"""``study check``: what a scenario file would do, before anything is started. Nothing is sent, nothing is written."""

from pathlib import Path
from typing import Any

from scenarios.plan import Plan, scenario_sha256
from scenarios.strict_toml import ScenarioError

ASSUMED_TOK_PER_S = 20.0  # about what the embedded engine's F32 baseline decodes on one core of a small machine
N_IDS_SHOWN = 6

Report = dict[str, Any]


def report_on(plan: Plan, file: Path, assumed_tok_per_s: float) -> Report:
    """Size, order, digests and the assumed duration of a plan, ready for ``--json``.

    ``estimate_s`` = (sum of max_tokens of all requests) / ``assumed_tok_per_s``: every answer runs to its limit, one
    after the other; prefill, cache resets and the engine's start are not in it.
    """
    scenario = plan.scenario
    budget = {phase: sum(r.max_tokens for r in plan.requests if r.phase == phase) for phase in ("warmup", "measured")}
    domains = [
        {
            "domain": domain,
            "asked": asked,
            "n_requests": sum(request.domain == domain for request in plan.measured),
            "max_tokens": scenario.request.max_tokens[domain],
        }
        for domain, asked in scenario.mix.domains.items()
    ]
    return {
        "ok": True,
        "file": str(file),
        "name": scenario.name,
        "kind": scenario.kind,
        "seed": scenario.seed,
        "order": scenario.mix.order,
        "endpoint": scenario.mix.endpoint,
        "cache": scenario.cache.model_dump(),
        "n_requests": len(plan.requests),
        "n_warmup": len(plan.warmup),
        "n_measured": len(plan.measured),
        "domains": domains,
        "warmup_prompt_ids": [request.prompt_id for request in plan.warmup],
        "measured_prompt_ids": [request.prompt_id for request in plan.measured],
        "plan_sha256": plan.digest,
        "scenario_sha256": scenario_sha256(scenario),
        "prompts_sha256": dict(plan.prompts_sha256),
        "warmup_output_max_tokens": budget["warmup"],
        "measured_output_max_tokens": budget["measured"],
        "assumed_tok_per_s": assumed_tok_per_s,
        "estimate_s": (budget["warmup"] + budget["measured"]) / assumed_tok_per_s,
        "timeout_s": scenario.limits.timeout_s,
    }


def report_of_error(error: ScenarioError, file: Path) -> Report:
    """Why a file was refused, ready for ``--json``; ``value`` is null where a key has none."""
    return {
        "ok": False,
        "file": str(file),
        "error": {
            "file": None if error.path is None else str(error.path),
            "line": error.line,
            "problems": [
                {"key": problem.key, "value": _as_json(problem.value), "message": problem.message}
                for problem in error.problems
            ],
        },
    }


def table_of(report: Report) -> str:
    """The report as a short plain table."""
    tokens = report["warmup_output_max_tokens"] + report["measured_output_max_tokens"]
    kind = f"{report['kind']}, {report['endpoint']}, cache {report['cache']['policy']} per {report['cache']['per']}"
    lines = [
        f"{report['file']}: good",
        "",
        f"  {'scenario':<10}{report['name']} ({kind})",
        f"  {'requests':<10}{report['n_measured']} measured after {report['n_warmup']} warm-up",
        f"  {'order':<10}{report['order']}, seed {report['seed']}: {_first(report['measured_prompt_ids'])}",
        f"  {'warm-up':<10}{_first(report['warmup_prompt_ids'])}",
        f"  {'plan':<10}sha256 {report['plan_sha256']}",
        f"  {'duration':<10}about {_duration(report['estimate_s'])}, if each answer runs to its max_tokens ({tokens}"
        f" in all) at {report['assumed_tok_per_s']:g} tok/s",
        f"  {'':<10}(an assumption, see --assume-tok-per-s; prefill, resets and start not counted)",
        "",
        f"  {'domain':<12}{'asked':>8}{'requests':>10}{'max_tokens':>12}",
    ]
    lines += [
        f"  {row['domain']:<12}{row['asked']:>8}{row['n_requests']:>10}{row['max_tokens']:>12}"
        for row in report["domains"]
    ]
    return "\n".join(lines)


def _first(ids: list[str]) -> str:
    if not ids:
        return "none"
    more = len(ids) - N_IDS_SHOWN
    return ", ".join(ids[:N_IDS_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _as_json(value: object) -> object:
    """The value itself where JSON can hold it, else its text."""
    if value is None or isinstance(value, str | int | bool):
        return value
    if isinstance(value, list):
        return [_as_json(inner) for inner in value]
    if isinstance(value, dict):
        return {str(key): _as_json(inner) for key, inner in value.items()}
    if isinstance(value, float) and value - value == 0:
        return value
    return str(value)
