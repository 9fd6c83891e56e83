"""``study check``: what a scenario file would do, before anything is started. Nothing is sent, nothing is written."""

import textwrap
from pathlib import Path
from typing import Any

from scenarios.notices import plan_notices
from scenarios.plan import Plan, PlanLevel, scenario_sha256
from scenarios.strict_toml import ScenarioError

ASSUMED_TOK_PER_S = 20.0  # about what the embedded engine's F32 baseline decodes on one core of a small machine
N_IDS_SHOWN = 6

Report = dict[str, Any]


def report_on(plan: Plan, file: Path, assumed_tok_per_s: float) -> Report:
    """Size, order, levels, digests, notices and the assumed duration of a plan, ready for ``--json``.

    A search visits ``most_levels`` of ``levels`` at most; requests, tokens and duration are those of all of them.

    ``estimate_s`` = (sum of max_tokens) / ``assumed_tok_per_s`` where requests go one after the other: every answer
    runs to its limit. A level of users takes that divided by them, or its ``steady_s`` and one answer more; a level of
    arrivals its last instant and one answer more. Prefill, cache resets and the engine's start are not in it.
    ``plan_sha256`` is None where the plan takes a server's tokenizer, which ``why_no_plan_sha256`` then says.
    """
    scenario = plan.scenario
    budget = {phase: sum(r.max_tokens for r in plan.requests if r.phase == phase) for phase in ("warmup", "measured")}
    levels = [_level(plan, level, assumed_tok_per_s) for level in plan.levels]
    one_by_one_s = 0.0 if levels else budget["measured"] / assumed_tok_per_s
    unmade = any(getattr(request, "target_prompt_tokens", None) is not None for request in plan.measured)
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
        "levels": levels,
        "search": scenario.searches,
        "most_levels": plan.most_levels,
        "notices": list(plan_notices(scenario)),
        "plan_sha256": None if unmade else plan.digest,
        "why_no_plan_sha256": "prompts get their length from the server's tokenizer when it runs" if unmade else None,
        "scenario_sha256": scenario_sha256(scenario),
        "prompts_sha256": dict(plan.prompts_sha256),
        "warmup_output_max_tokens": budget["warmup"],
        "measured_output_max_tokens": budget["measured"],
        "assumed_tok_per_s": assumed_tok_per_s,
        "estimate_s": budget["warmup"] / assumed_tok_per_s + one_by_one_s + sum(one["estimate_s"] for one in levels),
        "timeout_s": scenario.limits.timeout_s,
    }


def _level(plan: Plan, level: PlanLevel, assumed_tok_per_s: float) -> dict[str, Any]:
    """A level's condition and size; ``n_requests`` is the most it sends where it is ended by time."""
    requests = plan.of_level(level.label)
    tokens = sum(request.max_tokens for request in requests)
    answer_s = tokens / len(requests) / assumed_tok_per_s
    last_s = max((getattr(request, "scheduled_after_s", None) or 0.0 for request in requests), default=0.0)
    if level.steady_s is not None:
        estimate_s = level.steady_s + answer_s
    elif level.users is not None:
        estimate_s = tokens / assumed_tok_per_s / level.users
    else:
        estimate_s = last_s + answer_s
    return {
        "label": level.label,
        "users": level.users,
        "rate_per_s": level.rate_per_s,
        "target_tokens": level.target_tokens,
        "steady_s": level.steady_s,
        "n_requests": len(requests),
        "output_max_tokens": tokens,
        "estimate_s": estimate_s,
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
    up_to = "at most " if report["search"] else ""
    lines = [
        f"{report['file']}: good",
        "",
        f"  {'scenario':<10}{report['name']} ({kind})",
        f"  {'requests':<10}{up_to}{report['n_measured']} measured after {report['n_warmup']} warm-up",
        f"  {'order':<10}{report['order']}, seed {report['seed']}: {_first(report['measured_prompt_ids'])}",
        f"  {'warm-up':<10}{_first(report['warmup_prompt_ids'])}",
        f"  {'plan':<10}{_digest(report)}",
        f"  {'duration':<10}{up_to or 'about '}{_duration(report['estimate_s'])}, if each answer runs to its max_tokens"
        f" ({tokens} in all) at {report['assumed_tok_per_s']:g} tok/s",
        f"  {'':<10}(an assumption, see --assume-tok-per-s; prefill, resets and start not counted)",
        "",
        f"  {'domain':<12}{'asked':>8}{'requests':>10}{'max_tokens':>12}",
    ]
    lines += [
        f"  {row['domain']:<12}{row['asked']:>8}{row['n_requests']:>10}{row['max_tokens']:>12}"
        for row in report["domains"]
    ]
    if report["search"]:
        said = f"visits at most {report['most_levels']} of these {len(report['levels'])} levels, by bisection, for the"
        lines += ["", f"  {'search':<10}{said} highest that meets", f"  {'':<10}the objectives of [limits]"]
    if report["levels"]:
        lines += ["", f"  {'level':<16}{'requests':>10}{'max_tokens in all':>20}{'about':>10}"]
        for row in report["levels"]:
            about = _duration(row["estimate_s"])
            lines.append(f"  {row['label']:<16}{row['n_requests']:>10}{row['output_max_tokens']:>20}{about:>10}")
    for notice in report["notices"]:
        lines += ["", *textwrap.wrap(notice, 100, initial_indent="  note: ", subsequent_indent="        ")]
    return "\n".join(lines)


def _digest(report: Report) -> str:
    digest = report["plan_sha256"]
    return f"not made yet: {report['why_no_plan_sha256']}" if digest is None else f"sha256 {digest}"


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
