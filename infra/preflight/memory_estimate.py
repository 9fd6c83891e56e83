"""Will it fit? Weights, KV cache and overhead against the devices' memory, with the sum shown.

The sum is a lower bound for weights (an even share a device; what is replicated is left out) and an assumption for
overhead (context, activations, captured graphs), which is stated. What does not fit by this sum does not fit.
"""

from dataclasses import dataclass

from infra.engines.kv_elements import ELEMENT_BYTES
from infra.preflight.checkpoint import Checkpoint
from infra.preflight.findings import Finding
from infra.preflight.kv_cache import kv_cache, model_dtype
from infra.preflight.parameter_count import estimate_parameters
from infra.preflight.quantisation import read_quantisation

GIB = 1 << 30
OVERHEAD_GIB = 2.0  # a device: CUDA context, activations, graphs; an assumption, not a measurement
DEFAULT_TOKENS = 8192


@dataclass(frozen=True, kw_only=True)
class Devices:
    """What the arm planned. ``n_gpu_layers`` None: every layer; ``cpu_offload_gib`` is a device's."""

    memory_gib: float | None
    why_no_memory: str = "the devices' memory is not known; give --device-memory-gib"
    n: int = 1
    fraction: float | None = None  # of the memory that weights and cache may take, where the engine was told one
    overhead_gib: float = OVERHEAD_GIB
    n_gpu_layers: int | None = None
    cpu_offload_gib: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Weights:
    n_bytes: float | None
    n_parameters: int | None
    source: str


def weights_of(model: Checkpoint) -> Weights:
    """Bytes of the weights: from the files, else estimated from the configuration and the stored precision."""
    counted = sum(one.n_elements for one in model.tensors if len(one.shape) > 1)
    estimate = estimate_parameters(model)
    read = read_quantisation(model)
    quantised = read is not None and read.quantised and not model.gguf
    n_parameters = sum(estimate) if estimate and (quantised or not counted) else counted or None
    if model.n_weight_bytes is not None:
        return Weights(n_bytes=model.n_weight_bytes, n_parameters=n_parameters, source=model.weights_from)
    if estimate is None or read is None or read.bits is None:
        return Weights(n_bytes=None, n_parameters=n_parameters, source=model.weights_from)
    bits = read.bits
    if read.quantised and read.group_size:
        bits += (16 + read.bits) / read.group_size  # a scale and a zero point for each group
    plain = ELEMENT_BYTES.get(model_dtype(model), 2.0)
    n_bytes = estimate[0] * bits / 8 + estimate[1] * plain
    return Weights(n_bytes=n_bytes, n_parameters=sum(estimate), source="estimated from config.json")


def resident_share(model: Checkpoint, n_bytes: float, devices: Devices) -> tuple[float, str | None]:
    """Bytes that stay on the devices, and the arithmetic where some do not."""
    layers = model.n_layers
    chosen = devices.n_gpu_layers
    if chosen is not None and chosen >= 0 and layers and chosen <= layers:
        left = n_bytes * chosen / (layers + 1)  # the output matrix counts as one more layer, as in llama.cpp
        return left, f"{chosen} of {layers} + 1 layers on the device: {_gib(left)} of {_gib(n_bytes)} GiB"
    if devices.cpu_offload_gib > 0:
        left = max(0.0, n_bytes - devices.cpu_offload_gib * GIB * devices.n)
        words = f"{devices.cpu_offload_gib:g} GiB a device offloaded: {_gib(left)} of {_gib(n_bytes)} GiB stay"
        return left, words
    return n_bytes, None


def _device_share(model: Checkpoint, devices: Devices) -> float:
    """The part of the layers whose cache lies on the devices: a layer's cache stays with the layer."""
    chosen, layers = devices.n_gpu_layers, model.n_layers
    return min(1.0, chosen / layers) if chosen is not None and chosen >= 0 and layers else 1.0


def check_memory(
    target: Checkpoint, draft: Checkpoint | None, devices: Devices, *, kv_dtype: str | None, n_tokens: int | None
) -> Finding:
    """Weights + KV cache for ``n_tokens`` + overhead against the memory, the sum shown in GiB."""
    check = "memory"
    parts: list[tuple[str, float]] = []
    words: list[str] = []
    for whose, model in (("target", target), ("draft", draft)):
        if model is None:
            continue
        weights = weights_of(model)
        if weights.n_bytes is None:
            seen = f"the weights of the {whose} are not known ({weights.source})"
            return Finding(check=check, verdict="unknown", seen=seen, remedy="fetch its index or headers")
        left, offloaded = (
            resident_share(model, weights.n_bytes, devices) if whose == "target" else (weights.n_bytes, None)
        )
        size = f", {weights.n_parameters / 1e9:.2f} billion parameters" if weights.n_parameters else ""
        parts.append((f"{whose} weights", left))
        words.append(f"{whose} weights {_gib(left)} ({weights.source}{size}{'; ' + offloaded if offloaded else ''})")
    tokens = n_tokens or DEFAULT_TOKENS
    for whose, model in (("target", target), ("draft", draft)):
        cache = kv_cache(model, kv_dtype if whose == "target" else None) if model is not None else None
        if cache is not None and cache.bytes_per_token is not None:
            share = _device_share(target, devices) if whose == "target" else 1.0
            parts.append((f"{whose} KV cache", cache.bytes_per_token * tokens * share))
            of = f" x {share:.2f} on the device" if share < 1 else ""
            words.append(
                f"{whose} KV {_gib(parts[-1][1])} ({tokens:,} tokens x {cache.bytes_per_token:,.0f} bytes{of})"
            )
        elif cache is not None and whose == "target":
            words.append(f"target KV not counted ({cache.why_none})")
    parts.append(("overhead", devices.overhead_gib * GIB * devices.n))
    words.append(f"overhead {_gib(parts[-1][1])} ({devices.overhead_gib:g} GiB a device, assumed)")
    needed = sum(n_bytes for _, n_bytes in parts)
    facts = {name.replace(" ", "_") + "_bytes": round(n_bytes) for name, n_bytes in parts} | {
        "needed_bytes": round(needed)
    }
    total_words = " + ".join(words) + f" = {_gib(needed)} GiB"
    if devices.memory_gib is None:
        seen = f"{total_words}; {devices.why_no_memory}"
        return Finding(check=check, verdict="unknown", seen=seen, facts=facts)
    total = devices.memory_gib * GIB * devices.n
    facts |= {"memory_bytes": round(total), "n_devices": devices.n}
    room = f"{devices.n} x {devices.memory_gib:g} = {_gib(total)} GiB"
    pool = None if devices.fraction is None else total * devices.fraction
    in_pool = needed - parts[-1][1]
    if needed > total or (pool is not None and in_pool > pool):
        which = room if needed > total else f"the {devices.fraction:g} of {room} that weights and cache may take"
        remedy = "use larger or more devices or a quantised checkpoint, or offload (n-gpu-layers, cpu-offload-gb)"
        return Finding(
            check=check, verdict="refuse", seen=f"{total_words}, and {which} are there", remedy=remedy, facts=facts
        )
    seen = f"{total_words} of {room}; {_gib(total - needed)} GiB are left"
    return Finding(check=check, verdict="pass", seen=seen, facts=facts)


def _gib(n_bytes: float) -> str:
    return f"{n_bytes / GIB:.2f}"
