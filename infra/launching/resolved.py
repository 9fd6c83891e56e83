"""Two resolved configurations side by side: every setting has to equal the baseline's but the one varied. Pure.

What is not compared is listed here: ports and addresses, folders, ids of devices, and outcomes. Where a model lies is
compared by the last part of its path, so that the same files in two folders are one model and another model is not.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from infra.launching.resolved_readers import flat

Json = Any

# Last part of a setting's name: never compared, because it says where and not what.
ASIDE = frozenset(
    {
        *("host", "hostname", "hostnames", "port", "nccl_port", "grpc_port", "dist_init_addr", "smg_http_sidecar_port"),
        *(
            "engine_info_bootstrap_port",
            "disaggregation_bootstrap_port",
            "encoder_bootstrap_port",
            "data_parallel_rpc_port",
        ),
        *("data_parallel_master_port", "master_port", "remote_instance_weight_loader_seed_instance_service_port"),
        *("forward_pass_metrics_ipc_name", "tokenizer_ipc_name", "weight_cache_socket", "instance_id", "device_uuid"),
        *("file_storage_path", "download_dir", "crash_dump_folder", "export_metrics_to_file_dir", "spec_trace_dir"),
        *("debug_tensor_dump_output_folder", "slot_save_path", "log_file", "debug_dump_path", "launch_command"),
    }
)
_MODEL_PATHS = frozenset(
    {"model_path", "tokenizer_path", "model", "tokenizer", "path", "speculative_draft_model_path", "target", "draft"}
)
# What a key of a recipe is called in what the engine reports, beyond its own name with underscores.
_REPORTED = {
    "target": ("model_path", "tokenizer_path", "model", "model.path", "tokenizer"),
    "draft": ("speculative_draft_model_path", "speculative.draft.mparams.path", "model-draft", "draft"),
    "tp": ("tp_size",),
    "tensor-parallel-size": ("tensor_parallel_size",),
    "kv-cache-dtype": ("kv_cache_dtype", "cache_dtype"),
    "max-model-len": ("max_model_len", "max_seq_len"),
    "speculative-config": ("speculative_config",),
    "cache-type-k": ("kv_type_k",),
    "cache-type-v": ("kv_type_v",),
    "n-gpu-layers": ("offloaded_layers", "weight_backends"),
    "ctx-size": ("n_ctx",),
    "spec-type": ("speculative", "slots.speculative.types"),
    "speculative.types": ("slots.speculative.types",),
    "flash-attn": ("flash_attn",),
    "parallel": ("total_slots", "n_seq_max"),
}
# A recipe that varies one of these turns speculation on: the engine's other speculative settings belong to it.
_TURNS_ON = ("speculative-algorithm", "speculative-config", "spec-type")
_GROUPS = ("speculative_", "speculative.", "speculative_config", "spec-", "asked.spec-", "log.speculative_config")

CONFOUNDERS = {
    "bs": "SGLang captures graphs for other batch sizes under speculation: name cuda-graph-bs-decode in both arms",
    "max_running_requests": "SGLang takes 48 under speculation where it is not named: name it in both arms",
    "max_num_seqs": "the number of sequences at once changes batches and memory: name it in both arms",
    "mem_fraction_static": "a larger KV pool is another system: name one memory fraction in both arms",
    "gpu_memory_utilization": "a larger KV pool is another system: name one memory fraction in both arms",
    "disable_overlap_schedule": "the overlap scheduler is off in one of them: its gain would count as speculation's",
    "enable_prefix_caching": "one of them reuses prompts: its TTFT is another thing",
    "disable_radix_cache": "one of them reuses prompts: its TTFT is another thing",
    "async_scheduling": "vLLM turns it off for some kinds of speculation: its loss would count as speculation's",
    "version": "two versions of the engine: nothing between them is due to the setting varied",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """A setting that differs and was not varied on purpose. A side that does not report it is not None but absent."""

    key: str
    baseline: Json
    arm: Json
    in_baseline: bool
    in_arm: bool
    known_as: str | None  # what is known of this confounder and what to do

    def __str__(self) -> str:
        ours = repr(self.arm) if self.in_arm else "not reported"
        theirs = repr(self.baseline) if self.in_baseline else "not reported"
        return f"{self.key}: {ours} against the baseline's {theirs}" + (f" ({self.known_as})" if self.known_as else "")


def compare_resolved(
    baseline: Mapping[str, Json], arm: Mapping[str, Json], varied: Collection[str], *, follows: Collection[str] = ()
) -> tuple[Difference, ...]:
    """Every resolved setting that differs and is neither varied, nor follows from what is, nor stands aside.

    ``varied`` are a recipe's keys, in its own or the engine's words. Keys ``resolved.*`` are about the report itself;
    of these the version is compared.
    """
    ours, theirs = settings_of(arm), settings_of(baseline)
    found = []
    for key in sorted(ours.keys() | theirs.keys()):
        if _aside(key) or any(is_of(name, key) for name in (*varied, *follows)):
            continue
        if key in ours and key in theirs and comparable(key, ours[key]) == comparable(key, theirs[key]):
            continue
        found.append(
            Difference(
                key=key,
                baseline=theirs.get(key),
                arm=ours.get(key),
                in_baseline=key in theirs,
                in_arm=key in ours,
                known_as=CONFOUNDERS.get(key.rpartition(".")[2]),
            )
        )
    return tuple(found)


def not_comparable(baseline: Mapping[str, Json], arm: Mapping[str, Json]) -> str | None:
    """Why two reports cannot be compared at all; None where they can."""
    for whose, report in (("the baseline", baseline), ("the arm", arm)):
        if not settings_of(report):
            lacks = report.get("resolved.lacks") or ["no resolved settings on record"]
            return f"{whose} reports no settings: {'; '.join(map(str, lacks))}"
    sources = [set(report.get("resolved.sources") or ()) for report in (baseline, arm)]
    if sources[0] != sources[1]:
        return f"they come from other sources: {sorted(sources[0])} against {sorted(sources[1])}"
    return None


def compare_launches(
    baseline: Mapping[str, Json], arm: Mapping[str, Json]
) -> tuple[tuple[Difference, ...], str | None]:
    """The same for two ``launch.json`` as read: the differences, and why they cannot be had (then there are none)."""
    why = not_comparable(baseline.get("resolved") or {}, arm.get("resolved") or {})
    if why is not None:
        return (), why
    recipe = arm.get("arm")
    varied = (recipe.get("varied") if isinstance(recipe, Mapping) else None) or {}
    keys, follows = varied.get("keys") or (), varied.get("follows") or ()
    return compare_resolved(baseline["resolved"], arm["resolved"], keys, follows=follows), None


def is_of(varied: str, key: str) -> bool:
    """Whether a resolved setting is the one that this key of a recipe names, or a part of it."""
    plain = varied.replace("-", "_")
    names = {varied, plain, *_REPORTED.get(varied, ())}
    bare = key.removeprefix("asked.").removeprefix("log.").removeprefix("props.").removeprefix("slots.")
    if any(name in (key, bare, bare.rpartition(".")[2]) or key.startswith(f"{name}.") for name in names):
        return True
    if any(part in names for part in key.split(".")):
        return True
    return varied in (*_TURNS_ON, "speculative.types") and any(
        lead in (key, bare) or bare.startswith(lead) for lead in _GROUPS
    )


def settings_of(report: Mapping[str, Json]) -> dict[str, Json]:
    """The settings of a report by dotted name, the engine's version among them, without what is about the report."""
    found = {name: value for key, inner in report.items() for name, value in flat(inner, key)}
    kept = {key: value for key, value in found.items() if not key.startswith("resolved.")}
    if kept and report.get("resolved.version") is not None:
        kept["version"] = report["resolved.version"]
    return kept


def _aside(key: str) -> bool:
    return key.rpartition(".")[2].replace("-", "_") in ASIDE


def comparable(key: str, value: Json) -> Json:
    """A value as it is compared: 1 and 1.0 are alike, a model's path is its last part, a tuple is a list."""
    if isinstance(value, str) and key.rpartition(".")[2].replace("-", "_") in _MODEL_PATHS:
        return value.rstrip("/").rpartition("/")[2]
    if isinstance(value, tuple | list):
        return [comparable("", inner) for inner in value]
    if isinstance(value, bool):
        return ("bool", value)
    return value
