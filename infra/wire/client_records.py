"""From the recorder's records to the load generator's own series. Records are known by their fields alone."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from infra.wire.client_series import CPU, GC_PAUSE, LAG, ClientSample, Ended, per_token_s
from infra.wire.decode_time import Mark


class RequestFields(Protocol):
    """What is read of a request's record."""

    @property
    def outcome(self) -> str: ...
    @property
    def domain(self) -> str: ...
    @property
    def level(self) -> str | None: ...
    @property
    def first_token_after_s(self) -> float | None: ...
    @property
    def last_token_after_s(self) -> float | None: ...
    @property
    def end_after_s(self) -> float | None: ...
    @property
    def chunks(self) -> Sequence[Mark]: ...
    @property
    def coalesced_events(self) -> int | None: ...
    @property
    def n_completion_tokens(self) -> int | None: ...


class HealthFields(Protocol):
    """What is read of a worker's condition."""

    @property
    def lag_p50_s(self) -> float | None: ...
    @property
    def lag_max_s(self) -> float | None: ...
    @property
    def cpu_ratio(self) -> float | None: ...
    @property
    def gc_pause_max_s(self) -> float: ...


class ManifestFields(Protocol):
    """What is read of a run's manifest."""

    @property
    def run_id(self) -> str: ...
    @property
    def label(self) -> str | None: ...
    @property
    def arm(self) -> Any: ...
    @property
    def server(self) -> dict[str, Any]: ...
    @property
    def model(self) -> dict[str, Any]: ...
    @property
    def scenario(self) -> Any: ...


def ended(request: RequestFields) -> Ended:
    """What the tally takes from a request's record."""
    return Ended(
        outcome=request.outcome,
        domain=request.domain,
        level=request.level,
        ttft_s=request.first_token_after_s,
        tpot_s=per_token_s(
            first_s=request.first_token_after_s,
            last_s=request.last_token_after_s,
            marks=request.chunks,
            n_tokens=request.n_completion_tokens,
        ),
        e2e_s=request.end_after_s,
        n_output_tokens=request.n_completion_tokens,
        n_chunks=len(request.chunks),
        n_coalesced=request.coalesced_events,
    )


def health_samples(worker: int, health: HealthFields) -> Iterator[ClientSample]:
    """One worker's condition in one interval; what was not measured is left out."""
    label = {"worker": str(worker)}
    for stat, lag_s in (("median", health.lag_p50_s), ("max", health.lag_max_s)):
        if lag_s is not None:
            yield ClientSample(LAG, LAG, label | {"stat": stat}, lag_s)
    if health.cpu_ratio is not None:
        yield ClientSample(CPU, CPU, label, health.cpu_ratio)
    yield ClientSample(GC_PAUSE, GC_PAUSE, label, health.gc_pause_max_s)


def run_labels(manifest: ManifestFields) -> dict[str, str]:
    """``run_id`` and ``arm``: the recipe's name, else the label a server without a recipe was given."""
    arm = manifest.arm.get("name") if isinstance(manifest.arm, Mapping) else None
    return {"run_id": manifest.run_id, "arm": str(arm or manifest.label or "")}


def info_labels(manifest: ManifestFields) -> dict[str, str]:
    """What the run is; empty where the manifest does not know."""
    scenario = manifest.scenario if isinstance(manifest.scenario, Mapping) else {}
    told = {
        "engine": manifest.server.get("engine"),
        "engine_version": manifest.server.get("version"),
        "speculative": manifest.server.get("speculative"),
        "model": manifest.model.get("served"),
        "quantisation": manifest.model.get("quantisation"),
        "scenario": scenario.get("name"),
        "kind": scenario.get("kind"),
    }
    return {name: "" if value is None else str(value) for name, value in told.items()}
