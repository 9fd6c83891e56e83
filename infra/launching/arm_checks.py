"""What a command arm of a known engine has to name, and which of its flags contradict each other; before anything runs.

Each check is there because the engine itself is silent: it takes a draft and does not speculate, or it changes a
default when speculation is on (read in SGLang 0.5.17 to 0.5.23, vLLM 0.33 and llama.cpp b11434).
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from evidence.redact import secret_name
from infra.launching.arm_kinds import CommandArm


class Fault(NamedTuple):
    key: str
    value: object
    message: str


RESERVED = ("host", "port")
# Named by every arm, because the engine's default is another one with speculation or on another machine.
NAMED = {
    "sglang": {
        "max-running-requests": "left out, SGLang takes 48 under speculation and another number without",
        "mem-fraction-static": "left out, SGLang reckons it from the machine and from speculation",
    },
    "vllm": {
        "gpu-memory-utilization": "left out, it is the version's default",
        "max-num-seqs": "left out, vLLM takes it from the device",
        "max-model-len": "left out, it is the model's own, or what fits",
    },
    "llama.cpp": {
        "n-gpu-layers": "offloaded layers are part of what is measured: 0 for none",
        "ctx-size": "left out, it is the model's own, or what fits",
        "parallel": "left out, llama.cpp chooses the number of slots",
    },
}
# Which of an engine's modes want a draft model: True must, False must not, None may.
SGLANG_MODES = {"STANDALONE": True, "EAGLE3": True, "EAGLE": None, "NEXTN": None, "NGRAM": False}
VLLM_MODES = {"draft_model": True, "eagle": True, "eagle3": True, "mtp": None, "ngram": False, "suffix": False}
VLLM_MODES |= {"ngram_gpu": False}
LLAMACPP_MODES = {"draft-simple": True, "draft-eagle3": True, "draft-mtp": None, "ngram-simple": False}
LLAMACPP_MODES |= {"ngram-map-k": False, "ngram-map-k4v": False, "ngram-mod": False, "ngram-cache": False}
DRAFT_FLAGS = {
    "sglang": ("speculative-draft-model-path",),
    "vllm": (),
    "llama.cpp": ("spec-draft-model", "model-draft"),
}


def mode(arm: CommandArm) -> str | None:
    """The kind of speculation the command line asks for, in the engine's own word; None for none."""
    if arm.engine == "sglang":
        return _text(arm.args.get("speculative-algorithm"))
    if arm.engine == "vllm":
        config = arm.args.get("speculative-config")
        return _text(config.get("method")) if isinstance(config, Mapping) else None
    if arm.engine == "llama.cpp":
        kinds = _text(arm.args.get("spec-type"))
        return None if kinds == "none" else kinds
    return None


def faults(arm: CommandArm) -> Iterator[Fault]:
    """Everything wrong with the arm, the plainest first."""
    for key in (*arm.args, *(key for diagnostic in arm.diagnostics for key in diagnostic.args)):
        if key in RESERVED:
            yield Fault(f"args.{key}", arm.args.get(key), "is the launcher's to set; take it out")
        if secret_name(key):
            yield Fault(f"args.{key}", "[redacted]", "is a secret: set it in the environment of the launcher instead")
    for key, value in {**arm.args, **arm.environment, "program": arm.program}.items():
        if "\\x00" in repr(value):
            yield Fault(f"args.{key}", value, "holds a NUL character, which no command line can carry")
    for key in arm.environment:
        if secret_name(key):
            yield Fault(f"environment.{key}", "[redacted]", "is a secret: set it in the environment of the launcher")
    yield from _placeholders(arm)
    for key, why in NAMED.get(arm.engine, {}).items():
        if key not in arm.args:
            yield Fault(f"args.{key}", None, f"has to be named: {why}")
    if arm.engine != "other":
        yield from _speculation(arm)
    if arm.engine == "llama.cpp":
        yield from _llamacpp(arm)


def _placeholders(arm: CommandArm) -> Iterator[Fault]:
    written = str(list(arm.args.values()))
    if arm.engine != "other" and "{target}" not in written:
        yield Fault("args", None, "does not name the target: write {target} where the engine wants the model's path")
    if ("{draft}" in written) != (arm.draft is not None):
        shown = arm.draft.path if arm.draft else None
        yield Fault("draft", shown, "a draft is given here and named in args as {draft}, or neither")
    for role, checkpoint in (("target", arm.target), ("draft", arm.draft)):
        if f"{{{role}_revision}}" in written and (checkpoint is None or checkpoint.revision is None):
            yield Fault(f"{role}.revision", None, f"args name {{{role}_revision}} and there is none; give it")


def _speculation(arm: CommandArm) -> Iterator[Fault]:
    asked = mode(arm)
    draft = arm.draft.path if arm.draft else None
    if any(key in arm.args for key in DRAFT_FLAGS[arm.engine]) and asked is None:
        yield Fault("draft", draft, "a draft is loaded and speculation is off: name the mode")
    if arm.speculative != (asked is not None):
        said = asked or "no speculation"
        yield Fault("speculative", arm.speculative, f"the command line asks for {said}; make them agree")
    modes = {"sglang": SGLANG_MODES, "vllm": VLLM_MODES, "llama.cpp": LLAMACPP_MODES}[arm.engine]
    for kind in asked.split(",") if asked else ():
        wants = modes.get(kind)
        if kind not in modes:
            yield Fault("args", kind, f"is no mode known here; choose one of: {', '.join(modes)}")
        elif wants is not None and "," not in str(asked) and wants != (arm.draft is not None):
            yield Fault("draft", draft, f"{kind} {'needs a' if wants else 'takes no'} draft")


def _llamacpp(arm: CommandArm) -> Iterator[Fault]:
    if arm.backend is None:
        yield Fault("backend", None, "name it: cuda, vulkan, cpu or another; the binary decides, the log proves it")
    for role, checkpoint in (("target", arm.target), ("draft", arm.draft)):
        if checkpoint is not None and checkpoint.quantisation is None:
            yield Fault(f"{role}.quantisation", None, "name the file's quantisation type, for instance Q4_K_M")
    layers = arm.args.get("n-gpu-layers")
    if arm.backend == "cpu" and layers not in (0, "0"):
        yield Fault("args.n-gpu-layers", layers, "the CPU backend offloads no layer: write 0")
    for removed in ("draft", "draft-max", "draft-min"):
        if removed in arm.args:
            yield Fault(f"args.{removed}", arm.args[removed], "llama.cpp has removed it: write spec-draft-n-max")


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
