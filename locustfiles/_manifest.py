"""The manifest of a run: what is asked, of whom, with what; and what of it is missing and why."""

import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evidence.launch_folder import live_launch, open_launch
from evidence.records import Json, Launch, Manifest, Missing
from evidence.redact import redact_environment, redact_text
from infra.launching.recipes import Arm, ArmError, load_arm
from infra.openai_client import OpenAIClient, OpenAITransportError
from infra.probe import ProbeReport, as_json
from infra.provenance.clock_offset import on_this_host
from infra.provenance.provenance import Provenance, gather, probe_host
from locustfiles import _host_facts
from locustfiles._calibration import cited_calibration
from locustfiles._options import Options, UsageError
from scenarios.plan import Plan, scenario_sha256

WIRE_LIMIT_BYTES = 1 << 30  # raw segments kept for one run; beyond it the marks remain and the record says so
LAUNCHES = "launches"


@dataclass(frozen=True, kw_only=True)
class Cited:
    """The recipe asked for and, where this project launched the server, its launch folder."""

    arm: Arm | None
    folder: Path | None
    launch: Launch | None


def cite(options: Options) -> Cited:
    """The arm and the live launch serving ``options.host``. Raises UsageError for an arm that is none."""
    if options.arm is None:
        return Cited(arm=None, folder=None, launch=None)
    try:
        arm = load_arm(options.arm)
    except ArmError as error:
        raise UsageError(f"--arm {options.arm}: {error}") from None
    folders = dict.fromkeys((options.run_dir / LAUNCHES, options.run_dir.parent / LAUNCHES, Path("runs") / LAUNCHES))
    folder = live_launch(list(folders), options.host)
    if folder is None:
        return Cited(arm=arm, folder=None, launch=None)
    launch = open_launch(folder).launch
    launched = launch.arm.get("name") if isinstance(launch.arm, dict) else launch.arm
    if launched != arm.name:
        raise UsageError(f"--arm {arm.name}: the server at {options.host} was launched as {launched}: name that arm")
    return Cited(arm=arm, folder=folder, launch=launch)


def chosen_model(options: Options, client: OpenAIClient) -> str:
    """``--model``, else the only model served. Raises UsageError that says what the server answered."""
    if options.model is not None:
        return options.model
    try:
        models = client.discover_models()
    except OpenAITransportError as error:
        key = " Set OPENAI_API_KEY, or --header." if error.status in (401, 403) else ""
        said = f"{error.outcome}: {error.message}"
        raise UsageError(f"/v1/models names no model ({said}): name the model with --model.{key}") from None
    if len(models) == 1:
        return models[0]
    if models:
        raise UsageError(f"the server serves {len(models)} models ({', '.join(models)}): choose one with --model")
    raise UsageError("/v1/models lists no model: name the model with --model")


def make_manifest(
    *,
    run_id: str,
    options: Options,
    plan: Plan,
    probed: ProbeReport,
    cited: Cited,
    model: str,
    request_extra: dict[str, Any],
    n_workers: int = 1,
) -> Manifest:
    missing: list[Missing] = []
    commit, no_commit = _host_facts.git_commit()
    missing += [no_commit] if no_commit else []
    provenance = _provenance(options, probed, cited, model)
    missing += provenance.missing
    hardware, versions = _hardware(options, missing), _host_facts.versions()
    calibration, not_cited = cited_calibration(options, plan, n_workers=n_workers, hardware=hardware, versions=versions)
    missing += [not_cited] if not_cited else []
    return Manifest(
        run_id=run_id,
        created_at_unix_s=time.time(),
        label=options.label,
        note=options.note,
        scenario=plan.scenario.model_dump(mode="json"),
        scenario_sha256=scenario_sha256(plan.scenario),
        prompts_sha256=dict(plan.prompts_sha256),
        plan_sha256=plan.digest,
        n_planned=len(plan.requests),
        arm=_arm(cited),
        launch_dir=_shown(cited.folder, options.run_dir),
        launch_id=cited.launch.launch_id if cited.launch else None,
        server={**provenance.server, **_server(probed, cited, options, missing)},
        model={**provenance.model, **_model(model, probed, cited)},
        versions=versions,
        hardware={**provenance.hardware, **hardware},
        adapter=probed.facts.adapter,
        metric_types=dict(probed.facts.metric_types),
        git_commit=commit,
        clock=_host_facts.clock_pair(),
        calibration=calibration,
        environment=redact_environment(dict(os.environ)),
        options=_shown_options(options),
        request_extra=request_extra,
        wire_limit_bytes=WIRE_LIMIT_BYTES,
        n_workers=n_workers,
        missing=_once((*missing, *_always_missing(cited, options))),
    )


def _arm(cited: Cited) -> Json:
    if cited.launch is not None:
        return {**cited.launch.arm, "resolved": cited.launch.resolved}
    return None if cited.arm is None else cited.arm.model_dump(mode="json")


def _shown(folder: Path | None, run_dir: Path) -> str | None:
    """Relative to the folder the run lands in, so that the two can be moved together."""
    if folder is None:
        return None
    return os.path.relpath(folder, run_dir)


def _server(probed: ProbeReport, cited: Cited, options: Options, missing: list[Missing]) -> dict[str, Json]:
    facts = as_json(probed)
    facts.pop("model_meta")
    if cited.launch is not None and facts["version"] is None:
        engine = cited.launch.versions.get("xllamacpp")
        facts["version"] = None if engine is None else f"xllamacpp {engine}"
        facts["why_version"] = "the engine's package version, from the launch folder"
    if facts["version"] is None:
        missing.append(Missing(what="server.version", why=str(facts["why_version"])))
    facts["metrics_urls"] = list(options.metrics_urls)
    return facts


def _model(model: str, probed: ProbeReport, cited: Cited) -> dict[str, Json]:
    facts: dict[str, Json] = {"asked": model, "meta": dict(probed.facts.model_meta)}
    facts["served"] = model if model in probed.facts.models else None
    if cited.launch is not None:
        facts.update(cited.launch.model)
        facts["file_sha256"] = cited.launch.model.get("sha256")
        facts["draft"] = cited.launch.draft
    return facts


def _hardware(options: Options, missing: list[Missing]) -> dict[str, Json]:
    facts = _host_facts.hardware()
    same_host = on_this_host(options.host)
    facts["server_on_this_host"] = same_host
    if not same_host:
        missing.append(Missing(what="server hardware", why="the server runs on another host"))
    return facts


def _always_missing(cited: Cited, options: Options) -> list[Missing]:
    found: list[Missing] = []
    if cited.launch is None:
        why = (
            "no recipe (--label)" if cited.arm is None else f"no live launch of {cited.arm.name} serves {options.host}"
        )
        found.append(Missing(what="launch", why=why))
    return found


def _provenance(options: Options, probed: ProbeReport, cited: Cited, model: str) -> Provenance:
    """Packages, files, backends, container, GPUs and clock, as far as the server and this host tell."""
    launch = cited.launch
    host = probe_host(
        options.host,
        program=None,
        pid=launch.pid if launch else None,
        arm_digest=None,
        launched_here=launch is not None,
    )
    if launch is not None:
        host = replace(host, packages=launch.versions, why_no_packages=None)
    bodies = {name: _json(got.body) for name, got in probed.fetched.items() if got.status == 200}
    found = gather(host=host, bodies=bodies, settings=launch.resolved if launch else {}, asked=model)
    if launch is None:
        return found
    others = tuple(one for one in found.missing if one.what != "model.revision")
    if launch.model.get("sha256") or launch.model.get("revision"):
        return replace(found, missing=others)
    why = str(launch.model.get("why_sha256") or launch.model.get("why_revision") or "its launch names neither")
    return replace(found, missing=(*others, Missing(what="model.revision", why=why)))


def _json(body: bytes | None) -> Json:
    try:
        return json.loads(body or b"null")
    except ValueError:
        return None


def _once(missing: Iterable[Missing]) -> tuple[Missing, ...]:
    """The first reason given for each thing."""
    found: dict[str, Missing] = {}
    for one in missing:
        found.setdefault(one.what, one)
    return tuple(found.values())


def _shown_options(options: Options) -> dict[str, Json]:
    """The options as given; headers by name only, since their values are secrets."""
    return {
        "host": options.host,
        "scenario": str(options.scenario),
        "run_dir": str(options.run_dir),
        "model": options.model,
        "metrics_urls": list(options.metrics_urls),
        "prometheus_url": None if options.prometheus_url is None else redact_text(options.prometheus_url),
        "client_metrics_port": options.client_metrics_port,
        "transport": options.transport,
        "passes": options.passes,
        "seed": options.seed,
        "extra_body": options.extra_body,
        "headers": sorted(options.headers),
        "no_profile": options.no_profile,
        "calibration": _calibration(options),
        "shards": options.shards,
    }


def _calibration(options: Options) -> str | None:
    """As it was typed; None where the best fit was to be found."""
    if not options.cite_calibration:
        return "none"
    return None if options.calibration is None else str(options.calibration)
