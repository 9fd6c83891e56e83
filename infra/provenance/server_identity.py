"""What a server says it is: names side by side, packages, backends; read from its answers and settings. No I/O.

What neither the server nor its interpreter names becomes a ``Missing`` with the reason.
"""

import re
from collections.abc import Mapping
from typing import Any

from evidence.records import Missing

# Packages by what they are, first found first: what a report of a server's software has to name.
WANTED = {
    "engine": ("sglang", "vllm", "tensorrt-llm", "llama.cpp", "xllamacpp", "llama-cpp-python"),
    "flashinfer": ("flashinfer-python", "flashinfer", "flashinfer-cubin"),
    "torch": ("torch",),
    "cuda": ("cuda", "nvidia-cuda-runtime", "nvidia-cuda-runtime-cu13", "nvidia-cuda-runtime-cu12"),
    "driver": ("nvidia_driver", "driver"),
}
_NO_GPU_SOFTWARE = ("llama.cpp", "xllamacpp", "llama-cpp-python")  # need none of flashinfer, torch, CUDA
# What an engine reports of its attention and graph backends, by the last part of a setting's name.
BACKENDS = {
    "attention": (
        "attention_backend",
        "decode_attention_backend",
        "prefill_attention_backend",
        "flash_attn_type",
        "flash_attn",
    ),
    "graph": ("cuda_graph_config", "disable_cuda_graph", "cudagraph_mode", "enforce_eager", "cuda_graph_max_bs"),
    "sampling": ("sampling_backend",),
    "kv_cache_dtype": ("kv_cache_dtype", "cache_dtype", "cache_type_k", "cache_type_v", "kv_type_k", "kv_type_v"),
}


def names_side_by_side(asked: str, bodies: Mapping[str, Any]) -> dict[str, Any]:
    """The name asked for, what is served under it, where that was loaded from, and the architecture it resolved to."""
    listed = _get(bodies, "models", "data") or []
    entries = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    entry = next((one for one in entries if one.get("id") == asked), entries[0] if len(entries) == 1 else {})
    info = {**_dict(bodies.get("server_info")), **_dict(bodies.get("model_info"))}
    config = _dict(_get(info, "vllm_config", "model_config"))
    architectures = info.get("architectures") or config.get("architectures") or _get(entry, "meta", "architecture")
    loaded = info.get("model_path") or config.get("model") or entry.get("root") or _get(bodies, "props", "model_path")
    return {
        "asked": asked,
        "served": entry.get("id"),
        "loaded_from": loaded,
        "tokenizer": info.get("tokenizer_path") or config.get("tokenizer"),
        "architecture": architectures[0]
        if isinstance(architectures, list) and architectures
        else architectures or None,
        "differ": [
            f"asked for {asked!r}, served is {entry.get('id')!r}"
            for _ in range(1)
            if entry.get("id") not in (None, asked)
        ],
    }


def packages_of(
    bodies: Mapping[str, Any], *, installed: Mapping[str, str], why_none: str | None, driver: str | None
) -> tuple[dict[str, Any], list[Missing]]:
    """``named`` by what each package is, ``all`` as told; what the interpreter has goes before what the server says."""
    reported = _reported_packages(bodies)
    known = {**reported, **installed}
    differ = [
        f"{name}: the server says {said}, its interpreter has {installed[name]}"
        for name, said in reported.items()
        if installed.get(name, said) != said
    ]
    missing: list[Missing] = []
    torch = re.search(r"\+cu(\d+)(\d)$", str(known.get("torch", "")))
    if torch is not None and "cuda" not in known:
        known["cuda"] = f"{torch[1]}.{torch[2]}"
    if driver and "nvidia_driver" not in known:
        known["nvidia_driver"] = driver
    found = {what: next((f"{n} {known[n]}" for n in names if n in known), None) for what, names in WANTED.items()}
    plain = any(name in known for name in _NO_GPU_SOFTWARE)
    for what, value in found.items():
        if value is None and not (plain and what != "engine"):
            why = why_none or "neither the server nor its interpreter names it"
            missing.append(Missing(what=f"server.packages.{what}", why=why))
    return {"named": found, "all": known, "differ": differ}, missing


def _reported_packages(bodies: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    info, version = _dict(bodies.get("server_info")), _dict(bodies.get("version")).get("version")
    listed = _get(bodies, "models", "data")
    owners = {one.get("owned_by") for one in listed if isinstance(one, dict)} if isinstance(listed, list) else set()
    if isinstance(version, str) and ("vllm" in owners or "vllm_config" in info):
        found["vllm"] = version
    if isinstance(info.get("version"), str) and "model_path" in info:
        found["sglang"] = info["version"]
    environment = _dict(info.get("system_env"))
    for name, said in (
        ("torch", "torch_version"),
        ("cuda", "cuda_runtime_version"),
        ("driver", "nvidia_driver_version"),
    ):
        if isinstance(environment.get(said), str):
            found[name] = environment[said]
    build = _get(bodies, "props", "build_info")
    if isinstance(build, str) and build:
        found["llama.cpp"] = build
    return found


def backends_of(settings: Mapping[str, Any], engine: str | None) -> tuple[dict[str, Any], list[Missing]]:
    """Attention, graph and other backends as the resolved configuration names them, by kind."""
    found: dict[str, Any] = {}
    missing: list[Missing] = []
    wanted = ("attention",) if (engine or "").split(" ")[0] in _NO_GPU_SOFTWARE else ("attention", "graph")
    for what, names in BACKENDS.items():
        said = {key: value for key, value in settings.items() if _ends(key, names) and value is not None}
        found[what] = said or None
        if not said and what in wanted:
            missing.append(Missing(what=f"server.backends.{what}", why="the resolved configuration does not say it"))
    return found, missing


def _ends(key: str, names: tuple[str, ...]) -> bool:
    parts = key.replace("-", "_").split(".")
    return any(part in names for part in parts)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _get(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
