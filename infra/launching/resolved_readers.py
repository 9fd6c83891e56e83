"""What a server says its settings are, as one flat dict of dotted names; a reader each for what an engine offers. Pure.

Nothing is guessed: a setting that an engine does not report is not there. Values that are outcomes, not settings
(the size of a memory pool, how long the start took), are kept apart, since they may differ between equal settings.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.launching.call_text import read_call, read_dict
from infra.wire.exposition import Exposition

Json = Any

_SGLANG_OUTCOMES = (
    "status",
    "startup_time",
    "internal_states",
    "max_total_num_tokens",
    "max_req_input_len",
    "kv_events",
)
_VLLM_OUTCOMES = ("num_gpu_blocks", "num_cpu_blocks", "kv_cache_size_tokens", "num_gpu_blocks_override_resolved")
_VLLM_INFO = "vllm:cache_config_info"
_LLAMACPP_PROPS = (
    "total_slots",
    "model_ftype",
    "model_path",
    "model_alias",
    "build_info",
    "endpoint_slots",
    "endpoint_metrics",
)
_LLAMACPP_LINES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("log.n_ctx", re.compile(r"llama_context: n_ctx += (\d+)")),
    ("log.n_batch", re.compile(r"llama_context: n_batch += (\d+)")),
    ("log.n_ubatch", re.compile(r"llama_context: n_ubatch += (\d+)")),
    ("log.n_seq_max", re.compile(r"llama_context: n_seq_max += (\d+)")),
    ("log.flash_attn", re.compile(r"llama_context: flash_attn += (\w+)")),
    ("log.kv_unified", re.compile(r"llama_context: kv_unified += (\w+)")),
    ("log.kv_type_k", re.compile(r"llama_kv_cache: size = .*\bK \((\w+)\)")),
    ("log.kv_type_v", re.compile(r"llama_kv_cache: size = .*\bV \((\w+)\)")),
    ("log.file_type", re.compile(r"print_info: file type += (.+?)\s*$")),
    ("log.offloaded_layers", re.compile(r"offloaded (\d+/\d+) layers to GPU")),
    ("log.n_threads", re.compile(r"system_info: n_threads = (\d+)")),
)
_BUFFER = re.compile(r"load_tensors: +(\w+?)(?:_Mapped|_REPACK)? model buffer size")


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolved:
    """``settings`` by dotted name, ``outcomes`` likewise, and from which answers; what was looked for in vain."""

    engine: str
    version: str | None
    sources: tuple[str, ...]
    settings: Mapping[str, Json]
    outcomes: Mapping[str, Json]
    lacks: tuple[str, ...] = ()

    def record(self) -> dict[str, Json]:
        """For ``launch.json``: the settings, and under ``resolved.*`` what else is known of them."""
        about = {
            "engine": self.engine,
            "version": self.version,
            "sources": list(self.sources),
            "lacks": list(self.lacks),
        }
        return {
            **self.settings,
            **{f"resolved.{key}": value for key, value in about.items()},
            "resolved.outcomes": dict(self.outcomes),
        }


def flat(value: Json, lead: str = "") -> Iterator[tuple[str, Json]]:
    """Nested objects as dotted names; lists stay whole, an empty object too."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from flat(inner, f"{lead}.{key}" if lead else str(key))
    else:
        yield lead, value


def read_sglang(server_info: Json, config_lines: Sequence[str] = ()) -> Resolved:
    """From ``/server_info``, else from the line ``server_args=ServerArgs(...)`` of the log of a start that failed."""
    if isinstance(server_info, Mapping):
        outcomes = {key: server_info[key] for key in _SGLANG_OUTCOMES if key in server_info}
        states = outcomes.pop("internal_states", None)
        if isinstance(states, list) and states and isinstance(states[0], Mapping):
            kept = ("memory_usage", "effective_max_running_requests_per_dp")
            outcomes |= {f"internal_states.{key}": states[0][key] for key in kept if key in states[0]}
        version = server_info.get("version")
        named = {key: value for key, value in server_info.items() if key not in (*_SGLANG_OUTCOMES, "version")}
        return Resolved(
            engine="sglang",
            version=version if isinstance(version, str) else None,
            sources=("/server_info",),
            settings=dict(flat(named)),
            outcomes=outcomes,
        )
    for line in config_lines:
        found = read_call(line.partition("server_args=ServerArgs")[2])
        if found:
            return Resolved(engine="sglang", version=None, sources=("log",), settings=found, outcomes={})
    return _nothing("sglang", "/server_info, and the log has no line server_args=ServerArgs(...)")


def read_vllm(
    server_info: Json, version: str | None, metrics: Exposition | None, config_lines: Sequence[str] = ()
) -> Resolved:
    """From ``/server_info`` (development mode), the series ``vllm:cache_config_info`` and the start's own lines."""
    settings: dict[str, Json] = {}
    sources: list[str] = []
    lacks: list[str] = []
    config = server_info.get("vllm_config") if isinstance(server_info, Mapping) else None
    if isinstance(config, str):
        config = read_call(f"({config})")
    if isinstance(config, Mapping):
        settings |= dict(flat(config))
        sources.append("/server_info")
        environment = server_info.get("vllm_env")
        if isinstance(environment, Mapping):
            settings |= {f"environment.{key}": value for key, value in environment.items()}
    else:
        lacks.append("/server_info: start it with VLLM_SERVER_DEV_MODE=1 in its environment, on loopback only")
    for line in config_lines:
        head, _, rest = line.partition("with config: ")
        if rest:
            settings |= {f"log.{key}": value for key, value in read_call(f"({rest})").items()}
            spoken = re.search(r"LLM engine \(v([^)]+)\)", head)
            version = version or (spoken[1] if spoken else None)
        elif "non-default args: " in line:
            settings |= {
                f"asked.{key}": value for key, value in read_dict(line.partition("non-default args: ")[2]).items()
            }
    if any(key.startswith(("log.", "asked.")) for key in settings):
        sources.append("log")
    for sample in metrics.find(_VLLM_INFO) if metrics else ():
        settings |= {f"cache_config_info.{key}": value for key, value in sample.labels.items() if key != "engine"}
        sources.append(_VLLM_INFO)
    outcomes = {key: value for key, value in settings.items() if key.rpartition(".")[2] in _VLLM_OUTCOMES}
    return Resolved(
        engine="vllm",
        version=version,
        sources=tuple(dict.fromkeys(sources)),
        settings={key: value for key, value in settings.items() if key not in outcomes},
        outcomes=outcomes,
        lacks=tuple(lacks),
    )


def read_llamacpp(
    props: Json, slots: Json, log_lines: Iterable[str] = (), asked: Mapping[str, Json] | None = None
) -> Resolved:
    """From ``/props``, ``/slots``, the start's own lines (of the target: its lines come first) and the command line.

    The server reports no speculative setting but the mode, so that the rest is what was asked (``asked.*``).
    """
    settings: dict[str, Json] = {f"asked.{key}": value for key, value in (asked or {}).items()}
    sources = ["command line"] if asked else []
    lacks = []
    if isinstance(props, Mapping):
        settings |= {f"props.{key}": props[key] for key in _LLAMACPP_PROPS if key in props}
        generation = props.get("default_generation_settings")
        if isinstance(generation, Mapping) and "n_ctx" in generation:
            settings["props.n_ctx"] = generation["n_ctx"]
        sources.append("/props")
    else:
        lacks.append("/props does not answer")
    if isinstance(slots, list) and slots and all(isinstance(slot, Mapping) for slot in slots):
        for key in ("n_ctx", "speculative"):
            settings[f"slots.{key}"] = _same([slot.get(key) for slot in slots])
        modes = [slot["params"].get("speculative.types") for slot in slots if isinstance(slot.get("params"), Mapping)]
        settings["slots.speculative.types"] = _same(modes) if modes else None
        settings["slots.count"] = len(slots)
        sources.append("/slots")
    else:
        lacks.append("/slots does not answer: start it with --slots")
    found = read_llamacpp_log(log_lines)
    if found:
        sources.append("log")
    version = settings.pop("props.build_info", None)
    return Resolved(
        engine="llama.cpp",
        version=version if isinstance(version, str) else None,
        sources=tuple(sources),
        settings=settings | found,
        outcomes={},
        lacks=tuple(lacks),
    )


def read_llamacpp_log(lines: Iterable[str]) -> dict[str, Json]:
    """Context, batch, attention, KV types, offloaded layers, the backends that hold weights; the first line of each."""
    found: dict[str, Json] = {}
    backends: list[str] = []
    for line in lines:
        for key, pattern in _LLAMACPP_LINES:
            if key not in found and (m := pattern.search(line)):
                found[key] = int(m[1]) if m[1].isdigit() else m[1]
        if (m := _BUFFER.search(line)) and m[1] not in backends:
            backends.append(m[1])
    return {**found, "log.weight_backends": sorted(backends)} if backends else found


def _same(values: list[Json]) -> Json:
    """The one value of all, else the list of them."""
    return values[0] if values and all(value == values[0] for value in values) else values


def _nothing(engine: str, looked_for: str) -> Resolved:
    return Resolved(engine=engine, version=None, sources=(), settings={}, outcomes={}, lacks=(looked_for,))
