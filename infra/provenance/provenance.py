"""What exactly was measured: packages, model files, names, backends, container, GPUs and clock, each known or missing.

``gather`` is pure: it lays facts that others fetched side by side and names what is not there. ``probe_host`` asks this
host. Nothing secret leaves here: every value goes through ``evidence.redact``.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evidence.records import Json, Missing
from evidence.redact import redact_json
from infra.provenance.clock_offset import clock_offset, on_this_host
from infra.provenance.container import container, foreign
from infra.provenance.gpu_inventory import against_plan, inventory
from infra.provenance.model_hashes import model_hashes, snapshot_of
from infra.provenance.server_identity import backends_of, names_side_by_side, packages_of
from infra.provenance.versions import versions_of


@dataclass(frozen=True, kw_only=True)
class Host:
    """What this host tells of the server that runs on it; of a server elsewhere only what the arm says."""

    packages: Mapping[str, str] = field(default_factory=dict)
    why_no_packages: str | None = None
    container: Mapping[str, Any]
    gpus: Mapping[str, Any]
    clock: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """For a manifest: each part may be merged into the field of its name; ``missing`` joins the manifest's."""

    server: dict[str, Json]
    model: dict[str, Json]
    hardware: dict[str, Json]
    missing: tuple[Missing, ...]


def probe_host(
    url: str,
    *,
    program: tuple[str, ...] | None,
    environment: Mapping[str, str] | None = None,
    pid: int | None = None,
    arm_digest: str | None = None,
    launched_here: bool,
) -> Host:
    """Ask this host of the server at ``url``: about a second for the clock of another host, some for the packages.

    ``program`` is the arm's command, whose interpreter is asked; ``launched_here``: started by this project, here.
    """
    if not launched_here:
        why = "the server was not started here; only what it reports is known"
        here = on_this_host(url)
        return Host(
            why_no_packages=why,
            container=foreign(arm_digest),
            gpus=inventory() if here else {"gpus": [], "missing": "the server runs on another host"},
            clock=clock_offset(url),
        )
    packages, why_none = ({}, "no command to ask") if program is None else versions_of(program, environment or {})
    return Host(
        packages=packages,
        why_no_packages=why_none,
        container=container(arm_digest, environment={**os.environ, **(environment or {})}, pid=pid or "self"),
        gpus=inventory(),
        clock=clock_offset(url),
    )


def gather(
    *,
    host: Host,
    bodies: Mapping[str, Any],
    settings: Mapping[str, Any],
    asked: str,
    target: Path | None = None,
    draft: Path | None = None,
    planned_gpus: Mapping[str, Any] | None = None,
    hash_weights: bool = True,
) -> Provenance:
    """Everything side by side. ``bodies`` are parsed answers by endpoint (models, server_info, version, props,
    model_info); ``settings`` the resolved configuration, flat by dotted name; paths are local model files.
    """
    packages, no_packages = packages_of(
        bodies, installed=host.packages, why_none=host.why_no_packages, driver=host.gpus.get("driver")
    )
    backends, no_backends = backends_of(settings, packages["named"]["engine"])
    missing = [*no_packages, *no_backends]
    names = names_side_by_side(asked, bodies)
    if names["architecture"] is None:
        missing.append(Missing(what="model.architecture", why="no endpoint of the server says it"))
    files = {role: _files(path, role, hash_weights, missing) for role, path in (("target", target), ("draft", draft))}
    if not host.container.get("digest") and host.container.get("runs_in_one") is not False:
        missing.append(Missing(what="container_digest", why=str(host.container.get("why"))))
    if host.clock.get("offset_s") is None:
        missing.append(Missing(what="clock_offset", why=str(host.clock.get("why"))))
    hardware = _hardware(host.gpus, planned_gpus, missing)
    server = {
        "packages": packages,
        "backends": backends,
        "container": dict(host.container),
        "container_digest": host.container.get("digest"),
        "clock_offset": dict(host.clock),
    }
    model = {"names": names, "files": files, "revision": _revision(files["target"])}
    return Provenance(
        server=redact_json(server),
        model=redact_json(model),
        hardware=redact_json(hardware),
        missing=tuple(Missing(what=one.what, why=str(redact_json(one.why))) for one in missing),
    )


def _files(path: Path | None, role: str, hash_weights: bool, missing: list[Missing]) -> dict[str, Any] | None:
    if path is None:
        if role == "target":
            missing.append(Missing(what="model.revision", why="the server's model files are not on this host"))
        return None
    found = snapshot_of(path)
    try:
        hashes = model_hashes(path, small_only=not hash_weights)
    except OSError as error:
        missing.append(Missing(what=f"{role}.files", why=f"they cannot be read: {error.strerror}"))
        hashes = {"files": {}, "sha256": None, "n_bytes": None, "files_left_out": []}
    if hashes["files_left_out"]:
        missing.append(Missing(what=f"{role}.weights_sha256", why="the weights were not hashed, to save time"))
    digests: dict[str, str] = hashes["files"]
    return {
        "repository": found.repository if found else None,
        "commit": found.commit if found else None,
        "tokenizer_sha256": digests.get("tokenizer.json"),
        **hashes,
    }


def _revision(files: Mapping[str, Any] | None) -> str | None:
    if files is None:
        return None
    return files["commit"] or (None if files["sha256"] is None else f"sha256:{files['sha256']}")


def _hardware(gpus: Mapping[str, Any], planned: Mapping[str, Any] | None, missing: list[Missing]) -> dict[str, Any]:
    found = list(gpus.get("gpus") or [])
    if not found:
        missing.append(Missing(what="gpu", why=str(gpus.get("missing") or "no GPU is reported")))
    names = sorted({f"{gpu.get('name')} {(gpu.get('memory_bytes') or 0) >> 20} MiB" for gpu in found})
    links = sorted({str(link["link"]) for link in gpus.get("links") or []})
    words = f"{len(found)} x {', '.join(names)}" + (f", linked by {', '.join(links)}" if links else "")
    return {
        "gpu": words if found else None,
        "gpus": found,
        "gpu_driver": gpus.get("driver"),
        "gpu_driver_cuda": gpus.get("cuda"),
        "gpu_links": list(gpus.get("links") or []),
        "gpu_plan": None if planned is None else dict(planned),
        "gpu_plan_differences": [] if planned is None else against_plan(gpus, planned),
    }
