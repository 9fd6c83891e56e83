"""May two runs be compared? The listed keys must agree, but for what the arm varies on purpose; else the differing keys
are named and the comparison is refused.

    checkpoint      hash of the model file, or the revision          quantisation   as read from the checkpoint
    engine, engine_version, backend (attention, graphs, offloaded layers)
    gpu, topology   model, count, driver; links and parallelism      hardware       the server's processor and cores
    workload        digest of the plan                               memory         fractions, context, batch, pools
    request_extra   what was added to each request's body, but for the engine's evidence fields
    token_source    who counted the tokens                           transport      and where time stamps come from

A key unknown on one side or both does not refuse: it is named, and limits what the ratio says. Refused whatever the
keys say: forced (synthetic) acceptance, and a label that the checkpoint contradicts.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from analysis import identity
from analysis.loading import LoadedRun
from evidence.records import Launch, Manifest

# Engine settings by key: llama.cpp's dotted names, SGLang's and vLLM's arguments with - as _.
BACKEND = (
    "attention_backend",
    "decode_attention_backend",
    "prefill_attention_backend",
    "sampling_backend",
    "flash_attn_type",
    "n_gpu_layers",
    "disable_cuda_graph",
    "enforce_eager",
    "cpuparams.n_threads",
)
MEMORY = (
    "mem_fraction_static",
    "gpu_memory_utilization",
    "max_total_tokens",
    "max_running_requests",
    "max_num_seqs",
    "max_model_len",
    "context_length",
    "kv_cache_dtype",
    "chunked_prefill_size",
    "cuda_graph_max_bs",
    "n_ctx",
    "n_parallel",
    "n_batch",
    "n_ubatch",
    "cache_type_k",
    "cache_type_v",
    "cache_ram_mib",
)
TOPOLOGY = ("tp_size", "tensor_parallel_size", "dp_size", "data_parallel_size", "pp_size", "pipeline_parallel_size")
KEYS = (
    "checkpoint",
    "quantisation",
    "engine",
    "engine_version",
    "backend",
    "gpu",
    "topology",
    "hardware",
    "workload",
    "request_extra",
    "memory",
    "token_source",
    "transport",
)
MOMENTARY = frozenset({"memory_in_use_bytes", "missing"})  # of a device in the inventory: no part of what it is
# What a recipe says it varies, and the listed keys this changes on purpose; engine settings go by their own name.
ON_PURPOSE: Mapping[str, tuple[str, ...]] = {"target": ("checkpoint", "quantisation"), "engine": ("engine", "backend")}


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One listed key in which two runs differ, with both values; ``on_purpose`` names the setting the arm varies."""

    key: str
    base: Any
    arm: Any
    on_purpose: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparable:
    """``ok`` unless a key differs by accident or a run is refused by itself. ``unknown`` limits what the ratio says."""

    ok: bool
    differences: tuple[Difference, ...]
    on_purpose: tuple[Difference, ...]
    unknown: tuple[str, ...]
    refused: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def said(self) -> str:
        """Why it is refused, in one line; empty where it is not."""
        parts = [said for one in self.differences for said in _parted(one.key, one.base, one.arm)]
        return "; ".join([*self.refused, *parts])


def identity_of(run: LoadedRun) -> dict[str, Any]:
    """The listed keys of a run as read; None where the evidence does not say."""
    completed = [row.request for row in run.measured if row.request.outcome == "completed"]
    sources = sorted({one.token_source for one in completed if one.token_source is not None})
    stamps = Counter(f"{one.transport}, {one.stamp_source} stamps" for one in completed).most_common(1)
    return facts_of(run.manifest, run.launch) | {
        "token_source": ", ".join(sources) or None,
        "transport": stamps[0][0] if stamps else None,  # of most requests: a single one may lack a stamp
    }


def facts_of(manifest: Manifest, launch: Launch | None) -> dict[str, Any]:
    """The keys that a manifest and the launch it cites tell."""
    model = dict(launch.model if launch else {}) | {k: v for k, v in manifest.model.items() if v is not None}
    arguments = {
        name.rsplit("--", maxsplit=1)[-1].replace("-", "_"): value
        for name, value in identity.arguments(manifest, launch).items()
    }
    hardware = manifest.hardware
    gpu = {
        name: _lasting(hardware[name])
        for name in sorted(hardware)
        if name.startswith("gpu") and hardware[name] is not None
    }
    return {
        "checkpoint": _first(model, "file_sha256", "sha256", "revision"),
        "quantisation": _first(model, "quantisation"),
        "engine": _first(manifest.server, "engine"),
        "engine_version": identity.engine_version(manifest, launch),
        "backend": _settings(arguments, BACKEND),
        "gpu": gpu or None,
        "topology": (_settings(arguments, TOPOLOGY) or {}) | _named(hardware, "topology") or None,
        "hardware": _server_hardware(hardware),
        "workload": manifest.plan_sha256,
        "request_extra": json.dumps(identity.request_extra(manifest), sort_keys=True),
        "memory": _settings(arguments, MEMORY),
    }


def refusals(run: LoadedRun) -> list[str]:
    """Why this run may enter no comparison, whatever the other is."""
    manifest, found = run.manifest, []
    forced = identity.synthetic_acceptance(manifest, run.launch)
    if forced is not None:
        found.append(f"{manifest.run_id}: acceptance is synthetic ({forced})")
    model = dict(run.launch.model if run.launch else {}) | {k: v for k, v in manifest.model.items() if v is not None}
    label, read = _first(model, "quantisation_label"), _first(model, "quantisation")
    if label is not None and read is not None and label.lower() != read.lower():
        found.append(f"{manifest.run_id}: the label {label!r} is contradicted by the checkpoint's {read!r}")
    if model.get("contradicted"):
        found.append(f"{manifest.run_id}: contradicted by the checkpoint: {model['contradicted']}")
    return found


def varied_keys(manifest: Manifest) -> tuple[str, ...]:
    """The settings that the run's recipe says it varies against its baseline; () for a server without a recipe."""
    arm = manifest.arm if isinstance(manifest.arm, Mapping) else {}
    varied = arm.get("varied")
    keys = varied.get("keys") if isinstance(varied, Mapping) else None
    return tuple(str(key) for key in keys) if isinstance(keys, list | tuple) else ()


def compare_identities(
    base: Mapping[str, Any],
    arm: Mapping[str, Any],
    *,
    varied: Collection[str] = (),
    refused: Sequence[str] = (),
) -> Comparable:
    """Compare the listed keys; a setting in ``varied`` may differ, and is named among those on purpose."""
    allowed = {key: name for name in varied for key in ON_PURPOSE.get(name, ())}
    settings = {name.replace("-", "_"): name for name in varied}
    found: list[Difference] = []
    unknown = []
    for key in KEYS:
        ours, theirs = base.get(key), arm.get(key)
        if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
            pairs = [(f"{key}.{name}", ours.get(name), theirs.get(name)) for name in dict.fromkeys([*ours, *theirs])]
        else:
            pairs = [(key, ours, theirs)]
        for name, one, other in pairs:
            if one is None or other is None:
                unknown.append(name)
            elif one != other:
                plain = name.partition(".")[2]
                purpose = allowed.get(key) or next(
                    (said for given, said in settings.items() if _is(given, plain)), None
                )
                found.append(Difference(key=name, base=one, arm=other, on_purpose=purpose))
    accidental = tuple(one for one in found if one.on_purpose is None)
    return Comparable(
        ok=not accidental and not refused,
        differences=accidental,
        on_purpose=tuple(one for one in found if one.on_purpose is not None),
        unknown=tuple(unknown),
        refused=tuple(refused),
    )


def compare_runs(base: LoadedRun, arm: LoadedRun) -> Comparable:
    """Compare two runs as read: their keys, but for what either recipe varies, and what refuses either by itself."""
    return compare_identities(
        identity_of(base),
        identity_of(arm),
        varied={*varied_keys(base.manifest), *varied_keys(arm.manifest)},
        refused=[*refusals(base), *refusals(arm)],
    )


def _parted(key: str, base: Any, arm: Any) -> Iterator[str]:
    """Two values that differ, in words: of tables, and of lists as long as each other, only the parts that do."""
    if isinstance(base, Mapping) and isinstance(arm, Mapping):
        pairs = [(f"{key}.{name}", base.get(name), arm.get(name)) for name in dict.fromkeys([*base, *arm])]
    elif isinstance(base, list | tuple) and isinstance(arm, list | tuple) and len(base) == len(arm):
        pairs = [(f"{key}[{place}]", *both) for place, both in enumerate(zip(base, arm, strict=True))]
    else:
        yield f"{key}: {base!r} against {arm!r}"
        return
    for name, one, other in pairs:
        if one != other:
            yield from _parted(name, one, other)


def _is(given: str, name: str) -> bool:
    """Whether a setting, perhaps under a longer dotted name, is the one named. The draft's own settings are others."""
    if given.startswith("speculative."):
        return given == name
    return bool(name) and (given == name or given.endswith(f".{name}"))


def _settings(arguments: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any] | None:
    found = {
        name: value
        for name in names
        for value in [next((value for key, value in arguments.items() if _is(key, name)), None)]
        if value is not None
    }
    return found or None


def _lasting(value: Any) -> Any:
    """Devices without what changes from moment to moment: the memory in use hangs on what has just been started."""
    if not isinstance(value, list | tuple):
        return value
    return [
        {name: told for name, told in one.items() if name not in MOMENTARY} if isinstance(one, Mapping) else one
        for one in value
    ]


def _server_hardware(hardware: Mapping[str, Any]) -> dict[str, Any] | None:
    side = "client" if hardware.get("server_on_this_host") is True else "server"
    return _named(hardware, f"{side}_cpu_model", f"{side}_cores", f"{side}_cores_usable") or None


def _named(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: fields[name] for name in names if fields.get(name) is not None}


def _first(fields: Mapping[str, Any], *names: str) -> str | None:
    return next((str(fields[name]) for name in names if fields.get(name) not in (None, "")), None)
