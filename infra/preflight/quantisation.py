"""How a checkpoint's weights are stored, read from the checkpoint; a label that says otherwise is contradicted.

An arm's or a report's label ("AWQ", "FP8") is a claim. The checkpoint's own configuration and the element types of its
matrices are what an engine will load.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.preflight.checkpoint import Checkpoint, matrix_types
from infra.preflight.findings import Finding, Verdict

# ggml's file types (llama.h, enum llama_ftype) as GGUF's general.file_type numbers them.
_GGUF_FILE_TYPES = {
    **dict(enumerate(("F32", "F16", "Q4_0", "Q4_1"))),
    7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S",
    15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 24: "IQ1_S", 25: "IQ4_NL", 30: "IQ4_XS", 32: "BF16",
}  # fmt: skip
_SAME = {"bfloat16": "bf16", "float16": "f16", "fp16": "f16", "half": "f16", "float32": "f32", "fp32": "f32"}
_FAMILIES = {
    "compressedtensors": ("w4a16", "w8a8", "w8a16", "fp8", "int8", "int4"),
    "awq": ("awqmarlin",),
    "gptq": ("gptqmarlin",),
}
_NUMBER = re.compile(r"(?:int|w)?(\d+)(?:bits?|a16|a8)?")
# What shows a method: the end of a tensor's name, or the start of an element type.
_NAMES, _TYPES = {"awq": ".qweight", "gptq": ".qweight"}, {"fp8": "F8_"}


@dataclass(frozen=True, kw_only=True)
class Quantisation:
    """``method`` is awq, gptq, fp8, Q4_1 ..., or the element type (bf16) of weights that are not quantised."""

    method: str
    bits: float | None
    group_size: int | None
    quantised: bool
    source: str


def read_quantisation(model: Checkpoint) -> Quantisation | None:
    """None where neither configuration nor tensors say it."""
    if model.gguf:
        return _of_gguf(model)
    own = model.config.get("quantization_config") or model.config.get("compression_config")
    beside = model.extra.get("hf_quant_config.json", {}).get("quantization")
    if isinstance(own, dict):
        return _of_config(own, "config.json, quantization_config")
    if isinstance(beside, dict):
        return _of_config({"quant_method": beside.get("quant_algo"), **beside}, "hf_quant_config.json")
    types = matrix_types(model.tensors)
    named = model.config.get("torch_dtype") or model.config.get("dtype")
    dtype = types.most_common(1)[0][0] if types else named
    if dtype is None:
        return None
    method = _plain(str(dtype))
    bits = {"f32": 32.0, "bf16": 16.0, "f16": 16.0}.get(method)
    fp8 = method.startswith("f8")
    return Quantisation(
        method="fp8" if fp8 else method,
        bits=8.0 if fp8 else bits,
        group_size=None,
        quantised=bits is None,
        source="element type of most matrices" if types else "config.json, torch_dtype",
    )


def check_quantisation(model: Checkpoint, label: str | None, whose: str) -> Finding:
    """What the checkpoint says, against its own tensors and against the label that an arm gives it."""
    found = read_quantisation(model)
    check = f"quantisation of the {whose}"
    if found is None:
        seen = "neither configuration nor tensors say it"
        return Finding(check=check, verdict="unknown", seen=seen, facts={"label": label})
    bits = f", {found.bits:g} bits" if found.bits is not None else ""
    seen = f"{found.method}{bits} ({found.source})"
    wrong = _against_tensors(model, found)
    fits = label is None or label_fits(label, found)
    remedy = None
    if wrong is not None:
        seen, remedy = f"{seen}, contradicted by its tensors: {wrong}", "fetch it again, or mend its config.json"
    elif not fits:
        seen, remedy = f"{seen}: the label {label!r} is contradicted", "correct the label, or take what it names"
    elif label is not None:
        seen += f"; the label {label!r} agrees"
    facts = {
        "read": found.method,
        "bits": found.bits,
        "quantised": found.quantised,
        "source": found.source,
        "label": label,
        "label_contradicted": not fits,
    }
    verdict: Verdict = "refuse" if wrong is not None or not fits else "pass"
    return Finding(check=check, verdict=verdict, seen=seen, remedy=remedy, facts=facts)


def label_fits(label: str, found: Quantisation) -> bool:
    """Whether a label such as ``AWQ``, ``awq-int4`` or ``Q4_K_M`` can mean what was read."""
    words = {_plain(word) for word in re.split(r"[\s,/+-]+", label.lower()) if word} | {_plain(label)}
    method = _plain(found.method)
    if not found.quantised and words & {"none", "unquantised", "unquantized", "full"}:
        return True
    numbers = [float(match[1]) for word in words if (match := _NUMBER.fullmatch(word))]
    ggml = re.match(r"i?q(\d)", method)
    bits = float(ggml[1]) if ggml else found.bits  # Q4_1 is called 4-bit, whatever its matrices average
    if bits is not None and any(number != bits for number in numbers):
        return False
    named = {method, *_FAMILIES.get(method, ())}
    if method.startswith(("q", "iq")) and "k" in method:
        named.add(method.split("k")[0] + "k")  # Q4_K for Q4_K_M
    if method == "fp8":
        words |= {"fp8" for word in words if word.startswith("fp8")}
    return bool(words & named) or bool(numbers)


def _of_config(said: Mapping[str, Any], source: str) -> Quantisation:
    group = said.get("group_size")
    return Quantisation(
        method=_method(said),
        bits=_bits(said),
        group_size=group if type(group) is int and group > 0 else None,
        quantised=True,
        source=source,
    )


def _of_gguf(model: Checkpoint) -> Quantisation | None:
    number = model.config.get("general.file_type")
    most = next((kind for kind, _ in matrix_types(model.tensors).most_common(1)), None)
    method = _GGUF_FILE_TYPES.get(number) if type(number) is int else None
    counted = [tensor for tensor in model.tensors if len(tensor.shape) > 1 and tensor.n_bytes]
    elements = sum(tensor.n_elements for tensor in counted)
    bits = round(sum(tensor.n_bytes for tensor in counted) * 8 / elements, 2) if elements else None
    if method is None and most is None:
        return None
    name = method or str(most)
    plain = name in ("F32", "F16", "BF16")
    source = "GGUF general.file_type" if method else "type of most matrices"
    return Quantisation(method=name, bits=bits, group_size=None, quantised=not plain, source=source)


def _against_tensors(model: Checkpoint, found: Quantisation) -> str | None:
    types = matrix_types(model.tensors)
    if not types:
        return None
    names = ", ".join(f"{kind} {share:.0%}" for kind, share in _shares(types).items())
    if model.gguf:
        family = found.method.split("_")[0]
        fits = any(kind.split("_")[0] == family for kind in types) or found.method.startswith("IQ")
        return None if fits else f"matrices are {names}"
    if found.method in _NAMES:
        shown = any(one.name.endswith(_NAMES[found.method]) for one in model.tensors)
    elif found.method in _TYPES:
        shown = any(kind.startswith(_TYPES[found.method]) for kind in types)
    else:
        return None
    return None if shown else f"matrices are {names} and none is stored as {found.method}"


def _shares(types: Mapping[str, int]) -> dict[str, float]:
    total = sum(types.values()) or 1
    return {kind: n_bytes / total for kind, n_bytes in sorted(types.items(), key=lambda pair: -pair[1])[:3]}


def _method(said: Mapping[str, Any]) -> str:
    named = said.get("quant_method") or said.get("quant_algo") or "unknown method"
    return str(named).lower()


def _bits(said: Mapping[str, Any]) -> float | None:
    for name in ("bits", "w_bit", "weight_bits", "num_bits"):
        if type(said.get(name)) is int:
            return float(said[name])
    if said.get("load_in_4bit"):
        return 4.0
    if said.get("load_in_8bit") or "fp8" in _method(said):
        return 8.0
    groups = said.get("config_groups")
    for group in groups.values() if isinstance(groups, dict) else ():
        weights = group.get("weights") if isinstance(group, dict) else None
        if isinstance(weights, dict) and type(weights.get("num_bits")) is int:
            return float(weights["num_bits"])
    return None


def _plain(word: str) -> str:
    plain = re.sub(r"[^a-z0-9]", "", word.lower().removeprefix("torch.").removeprefix("mostly_").removeprefix("all_"))
    return _SAME.get(plain, plain)
