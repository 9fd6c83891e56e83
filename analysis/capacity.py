"""Memory and capacity of one launch, from three sources that are never mixed.

    logical   bytes of KV cache a token by the model's own configuration, and that times the engine's capacity
    engine    how many tokens the engine says its cache holds, and the bytes it says it set aside for them
    driver    what the GPU's driver reports as in use

They answer different questions. An engine that takes a fixed part of the device at its start fills what weights, a
draft and graphs leave with cache: the driver then shows the setting, whatever runs. What an algorithm costs in memory
shows in the tokens of capacity that are left.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.kv_bytes import KvBytes, config_of_llamacpp, kv_bytes, no_kv_bytes
from analysis.measures import Derived
from analysis.start_log import KvLines
from evidence.gpu_records import GpuSample
from infra.engines.labels import chosen
from infra.engines.window import Window

GIB = 2**30
STATIC = (
    "The server sets its memory aside at the start ({setting}), whatever is then kept in it: a difference of the"
    " driver's readings between arms shows that setting and what else lives on the device, and is not the cost of an"
    " algorithm. What an arm costs in memory shows in the tokens that its cache can hold."
)
_SETTINGS = (
    "mem_fraction_static",
    "cache_config.gpu_memory_utilization",
    "cache_config_info.gpu_memory_utilization",
    "asked.gpu_memory_utilization",
    "log.gpu_memory_utilization",
)
_DTYPES = ("kv_cache_dtype", "cache_config.cache_dtype", "cache_config_info.cache_dtype", "log.kv_cache_dtype")
_RANKS = ("tp_size", "parallel_config.tensor_parallel_size", "asked.tensor_parallel_size", "tensor_parallel_size")
Fields = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Driver:
    """Bytes in use over the host's sampled GPUs, added: at the first sample, and at the most."""

    first_bytes: int | None
    most_bytes: int | None
    total_bytes: int | None
    n_gpus: int
    n_samples: int
    why: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    """One launch. ``logical_bytes`` is bytes a token times the engine's capacity."""

    kv: KvBytes
    tokens: Derived
    tokens_source: str | None
    logical_bytes: Derived
    engine_bytes: Derived
    engine_bytes_source: str | None
    draft_tokens: int | None
    draft_bytes: float | None
    n_ranks: int | None
    setting: str | None  # the part of memory taken at the start, as set
    driver: Driver

    @property
    def sentence(self) -> str:
        """Why a driver difference is not the algorithm's cost."""
        return STATIC.format(setting=self.setting or "how much is not on record")

    def as_json(self) -> dict[str, Any]:
        whys = {"tokens": self.tokens.why, "logical_bytes": self.logical_bytes.why}
        whys |= {"engine_bytes": self.engine_bytes.why, "driver_most_bytes": self.driver.why}
        return {
            "kv_cache": self.kv.as_json(),
            "tokens": None if self.tokens.value is None else int(self.tokens.value),
            "tokens_source": self.tokens_source,
            "logical_bytes": self.logical_bytes.value,
            "engine_bytes": self.engine_bytes.value,
            "engine_bytes_source": self.engine_bytes_source,
            "draft_tokens": self.draft_tokens,
            "draft_bytes": self.draft_bytes,
            "n_ranks": self.n_ranks,
            "setting": self.setting,
            "driver_first_bytes": self.driver.first_bytes,
            "driver_most_bytes": self.driver.most_bytes,
            "driver_total_bytes": self.driver.total_bytes,
            "n_gpus": self.driver.n_gpus,
            "n_gpu_samples": self.driver.n_samples,
            "why": {name: why for name, why in whys.items() if why is not None},
        }


def capacity(
    *, config: Fields | None, resolved: Fields, windows: Sequence[Window], log: KvLines, gpu: Sequence[GpuSample]
) -> Capacity:
    """From the model's configuration as recorded, the resolved settings, the scrapes, the start log and GPU samples."""
    tokens, source = _tokens(resolved, windows, log)
    dtype = next((str(resolved[name]) for name in _DTYPES if resolved.get(name)), None) or _llamacpp_dtype(resolved)
    dtype = log.dtype if dtype in (None, "auto") and log.dtype is not None else dtype
    kv = no_kv_bytes("neither the launch nor the run records the model's configuration, and no start log tells it")
    if config:
        kv = kv_bytes(config, dtype, source="config.json")
    elif log.dimensions:
        kv = kv_bytes(config_of_llamacpp(log.dimensions), dtype, source="the start log's print_info")
    ranks = next((resolved[name] for name in _RANKS if type(resolved.get(name)) is int), None)
    engine_bytes, engine_source = _engine_bytes(windows, log, ranks)
    total = Derived(None, kv.why or tokens.why)
    if kv.bytes_per_token is not None and tokens.value is not None:
        total = Derived(kv.bytes_per_token * tokens.value, None)
    name = next((name for name in _SETTINGS if resolved.get(name) is not None), None)
    setting = f"{name.rpartition('.')[2]} = {resolved[name]}" if name is not None else None
    if setting is None and resolved.get("n_ctx") is not None:
        setting = f"n_ctx = {resolved['n_ctx']}"
    return Capacity(
        kv=kv,
        tokens=tokens,
        tokens_source=source,
        logical_bytes=total,
        engine_bytes=engine_bytes,
        engine_bytes_source=engine_source,
        draft_tokens=log.draft_tokens,
        draft_bytes=log.draft_bytes,
        n_ranks=ranks,
        setting=setting,
        driver=driver(gpu),
    )


def driver(samples: Sequence[GpuSample]) -> Driver:
    """What the driver said over these samples; None, and why, where it said nothing."""
    read = [one for one in sorted(samples, key=lambda one: one.at_unix_s) if one.gpus]
    used = [
        sum(gpu.memory_used_bytes or 0 for gpu in one.gpus)
        for one in read
        if all(gpu.memory_used_bytes is not None for gpu in one.gpus)
    ]
    if not used:
        why = next((one.missing for one in samples if one.missing), None) or "no sample of a GPU lies in that time"
        if read:
            why = "the driver tells no memory in use"
        return Driver(first_bytes=None, most_bytes=None, total_bytes=None, n_gpus=0, n_samples=0, why=why)
    sizes = [gpu.memory_total_bytes for gpu in read[0].gpus]
    return Driver(
        first_bytes=used[0],
        most_bytes=max(used),
        total_bytes=None if any(one is None for one in sizes) else sum(one or 0 for one in sizes),
        n_gpus=len(read[0].gpus),
        n_samples=len(used),
        why=None,
    )


def _tokens(resolved: Fields, windows: Sequence[Window], log: KvLines) -> tuple[Derived, str | None]:
    """The engine's capacity in tokens, by what it publishes while it runs before what it said at its start."""
    for read in (_sglang_gauge, _vllm_blocks):
        found = [read(window) for window in windows]
        known = [one for one in found if one is not None]
        if known and len(known) == len(found):
            return Derived(float(sum(value for value, _ in known)), None), known[0][1]
    outcomes = resolved.get("resolved.outcomes")
    outcomes = outcomes if isinstance(outcomes, Mapping) else {}
    for name, value in outcomes.items():
        if name.rpartition(".")[2] in ("max_total_num_tokens", "kv_cache_size_tokens") and type(value) is int and value:
            return Derived(float(value), None), f"the server's own {name}"
    if log.tokens is not None:
        return Derived(float(log.tokens), None), "the start log"
    if type(resolved.get("n_ctx")) is int and resolved["n_ctx"] > 0:
        return Derived(float(resolved["n_ctx"]), None), "n_ctx as resolved, all slots together"
    return Derived(
        None, "the engine tells no capacity: no series, no resolved setting and no line of its start log"
    ), None


def _sglang_gauge(window: Window) -> tuple[float, str] | None:
    name = "sglang:max_total_num_tokens"
    samples = chosen(window.after.exposition.find(name), window.rule)
    total = sum(sample.value for sample in samples)
    return (total, name) if samples and total > 0 else None


def _vllm_blocks(window: Window) -> tuple[float, str] | None:
    name = "vllm:cache_config_info"
    total = 0
    for sample in window.after.exposition.find(name):
        blocks, size = sample.labels.get("num_gpu_blocks", ""), sample.labels.get("block_size", "")
        if not blocks.isdigit() or not size.isdigit():
            return None
        total += int(blocks) * int(size)
    return (float(total), f"{name}: num_gpu_blocks x block_size") if total else None


def _engine_bytes(windows: Sequence[Window], log: KvLines, ranks: int | None) -> tuple[Derived, str | None]:
    of = f", one of {ranks} ranks" if ranks is not None and ranks > 1 else ""
    if log.kv_bytes is not None:
        return Derived(log.kv_bytes, None), f"the start log{of}"
    name = "sglang:kv_cache_memory_usage_gb"
    found = [chosen(window.after.exposition.find(name), window.rule) for window in windows]
    total = sum(sample.value for samples in found for sample in samples)
    if found and all(found) and total > 0:
        return Derived(total * GIB, None), f"{name}{of}"
    return Derived(None, "the engine tells no bytes of its cache"), None


def _llamacpp_dtype(resolved: Fields) -> str | None:
    for key, value in (("cache_type_k", "cache_type_v"), ("log.kv_type_k", "log.kv_type_v")):
        if resolved.get(key) and resolved.get(value):
            return f"{resolved[key]}/{resolved[value]}" if resolved[key] != resolved[value] else str(resolved[key])
    return None
