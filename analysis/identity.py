"""What was measured, as a manifest and the launch it cites say: does it speculate, how far, and what is not identified.

The manifest's ``arm``, ``server``, ``model`` and ``hardware`` are kept as they were said; this module is the one place
that looks into them. A field that is not there is unknown, and unknown is said.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from analysis.facts import Unknown
from evidence.records import Json, Launch, Manifest, Request

# Most draft tokens a step, by the setting that limits them, for each kind of speculation.
DRAFT_LIMITS = {
    "draft-simple": "speculative.draft.n_max",
    "ngram-simple": "speculative.ngram_simple.size_m",
    "ngram-mod": "speculative.ngram_mod.n_max",
}
ENGINE_PACKAGES = ("xllamacpp", "llama.cpp", "vllm", "sglang")  # as a launch's versions name them
# Body fields that only ask an engine for evidence, or keep a request cold: how each is asked hangs on the engine.
EVIDENCE_FIELDS = frozenset(
    {
        "stream_options",
        "timings_per_token",
        "cache_prompt",
        "return_spec_tokens_details",
        "return_cached_tokens_details",
    }
)
MODEL_SUFFIXES = (".gguf", ".safetensors", ".bin")
SYNTHETIC = ("speculative.synth_len", "speculative.synth_rates", "spec_synth_len", "spec_synth_rates")


def arguments(manifest: Manifest, launch: Launch | None) -> dict[str, Any]:
    """The engine's arguments by dotted name: the recipe's, under what the launch resolved."""
    arm = manifest.arm if isinstance(manifest.arm, Mapping) else {}
    merged: dict[str, Any] = {}
    for source in (arm.get("args"), arm.get("resolved"), launch.resolved if launch else None):
        if isinstance(source, Mapping):
            merged |= dict(_dotted(source))
    return merged


def speculative(manifest: Manifest, launch: Launch | None) -> bool | None:
    """Whether the engine was asked to speculate; for a server without a recipe what it says; None when nobody says."""
    if launch is not None and launch.speculation != "not asked":
        return True
    if manifest.arm is not None:
        kinds = _kinds(arguments(manifest, launch))
        if kinds is not None:
            return any(kind != "none" for kind in kinds)
        if isinstance(manifest.arm, Mapping) and isinstance(manifest.arm.get("speculative"), bool):
            return bool(manifest.arm["speculative"])
        return launch is not None and launch.draft is not None
    said = manifest.server.get("speculative")
    return said if isinstance(said, bool) else None


def speculation_refuted(manifest: Manifest, launch: Launch | None) -> str | None:
    """What shows that the engine does not speculate although its recipe says so; None when nothing does."""
    if manifest.arm is None or not speculative(manifest, launch):
        return None
    if manifest.server.get("speculative") is False:
        return "the recipe asks for speculation and the server itself says that it does not speculate"
    if launch is not None and launch.speculation == "not proven":
        return "the recipe asks for speculation and its launch found no proof that the engine speculates"
    return None


def arm_contradicted(manifest: Manifest, launch: Launch | None) -> str | None:
    """What the server says of itself that its recipe excludes; None when they agree or one of them does not say."""
    kinds = _kinds(arguments(manifest, launch)) if manifest.arm is not None else None
    if kinds is None or manifest.server.get("speculative") is not True:
        return None
    asked = sorted(kind for kind in kinds if kind != "none")
    mode = manifest.server.get("speculative_mode")
    if not asked:
        return f"the recipe asks for no speculation, and the server says that it speculates ({mode or 'mode not said'})"
    if isinstance(mode, str) and not set(mode.split(",")) & set(asked):
        return f"the recipe asks for {', '.join(asked)}, and the server says {mode}"
    return None


def synthetic_acceptance(manifest: Manifest, launch: Launch | None) -> str | None:
    """The setting that forces acceptance, as ``name = value``; None when there is none."""
    proof = launch.speculation_proof if launch is not None else None
    if isinstance(proof, Mapping) and proof.get("synthetic"):
        return str(proof["synthetic"])
    args = arguments(manifest, launch)
    for name in SYNTHETIC:
        value = _argument(args, name)
        forced = value > 0 if isinstance(value, int | float) else bool(value)  # llama.cpp: -1 and no rates mean off
        if forced:
            return f"{name} = {value!r}"
    return None


def draft_limit(manifest: Manifest, launch: Launch | None) -> int | None:
    """g, the most draft tokens a step: 0 without speculation, None when it is not known."""
    asked = speculative(manifest, launch)
    if asked is None:
        return None
    if not asked:
        return 0
    args = arguments(manifest, launch)
    kinds = [kind for kind in _kinds(args) or () if kind != "none"]
    limits = [_argument(args, DRAFT_LIMITS.get(kind, "")) for kind in kinds] or [_longest_path(args)]
    if not all(isinstance(limit, int) and not isinstance(limit, bool) and limit > 0 for limit in limits):
        return None
    return max(int(limit) for limit in limits if limit is not None)


def _longest_path(args: Mapping[str, Any]) -> int | None:
    """SGLang's and vLLM's: the most drafts that one step can accept, which a tree's nodes are more than."""
    names = ("num_draft_tokens", "num_steps", "algorithm")
    window, steps, algorithm = (
        _argument(args, f"speculative_{name}") or _argument(args, f"speculative-{name.replace('_', '-')}")
        for name in names
    )
    if isinstance(window, int) and algorithm == "NGRAM":
        return window - 1  # its path may fill the window; its steps are none of a draft
    if isinstance(window, int) and isinstance(steps, int):
        return min(window - 1, steps)
    found = _argument(args, "speculative_config.num_speculative_tokens")
    return found if isinstance(found, int) else None


def request_extra(manifest: Manifest) -> dict[str, Json]:
    """What was added to every request's body and may change its answer: all but the engine's own evidence fields."""
    return {name: value for name, value in sorted(manifest.request_extra.items()) if name not in EVIDENCE_FIELDS}


def model_served(requests: Iterable[Request]) -> str | None:
    """The model that most answers name; None where none names one."""
    named = Counter(r.model_served for r in requests if r.outcome == "completed" and r.model_served)
    return named.most_common(1)[0][0] if named else None


def model_differs(manifest: Manifest, requests: Iterable[Request]) -> str | None:
    """How the models that the answers name differ from the one asked, or among each other; None when they agree.

    A server that lists the model asked may answer by another name of it; paths, suffixes and case are no difference.
    """
    named = Counter(r.model_served for r in requests if r.outcome == "completed" and r.model_served)
    if len({_plain(name) for name in named}) > 1:
        shown = ", ".join(f"{name!r} {n} times" for name, n in named.most_common(3))
        return f"the answers name {len(named)} models: {shown}"
    asked, served = manifest.model.get("asked"), next(iter(named), None)
    if not isinstance(asked, str) or not asked or served is None or manifest.model.get("served") is not None:
        return None
    if _plain(served) == _plain(asked):
        return None
    return f"{asked!r} was asked for, the server does not list it, and its answers name {served!r}"


def _plain(name: str) -> str:
    last = PurePosixPath(name.replace("\\", "/")).name.lower()
    return next((last.removesuffix(suffix) for suffix in MODEL_SUFFIXES if last.endswith(suffix)), last)


def own_server(manifest: Manifest) -> bool:
    """True where a recipe launched it; a server that only has a label is someone else's."""
    return manifest.arm is not None


def unknown_parts(manifest: Manifest, launch: Launch | None) -> Iterator[Unknown]:
    """What identifies the measured system and is not on record, each with the reason the manifest gives."""
    reasons = {missing.what: missing.why for missing in manifest.missing}

    def why(*names: str) -> str:
        return next((f": {reasons[name]}" for name in names if name in reasons), "")

    if engine_version(manifest, launch) is None:
        seen = f"the engine's version is not known{why('server.version', 'version', 'engine version')}"
        yield Unknown(what="version", seen=seen)
    model = dict(launch.model if launch else {}) | {k: v for k, v in manifest.model.items() if v is not None}
    if not _first(model, "revision", "file_sha256", "sha256"):
        because = why("model.revision", "revision", "model")
        seen = f"neither the model's revision nor its file's hash is known{because}"
        yield Unknown(what="model_revision", seen=seen)
    if own_server(manifest) and launch is None and ("launch" in reasons or manifest.launch_id is not None):
        seen = f"a recipe is named, and no launch folder shows that it was this server{why('launch')}"
        yield Unknown(what="launch", seen=seen)
    if not own_server(manifest) and not _first(manifest.server, "container_digest", "image_digest"):
        because = why("container_digest", "server.container_digest")
        seen = f"the server is run by someone else and its container digest is not known{because}"
        yield Unknown(what="container_digest", seen=seen)


def engine_version(manifest: Manifest, launch: Launch | None) -> str | None:
    """The version of the package the launch started, else what the server said; None when neither is on record."""
    started = launch.versions if launch is not None else {}
    package = next((f"{name} {started[name]}" for name in ENGINE_PACKAGES if name in started), None)
    return package or _first(manifest.server, "version", "engine_version")


def engine_line(manifest: Manifest, launch: Launch | None) -> str:
    """Engine and version in words; unknown parts are called unknown."""
    engine = _first(manifest.server, "engine") or _first(manifest.arm or {}, "engine") or "unknown engine"
    version = engine_version(manifest, launch)
    if version is not None and version.partition(" ")[0] == engine:
        return version  # the package has the engine's own name
    return f"{engine} {version or 'of unknown version'}"


def model_line(manifest: Manifest, launch: Launch | None, answered: str | None = None) -> str:
    """The model's name, quantisation and the start of its file's hash, as far as they are known.

    ``answered`` is the name that the answers give; it goes before the one that was asked for.
    """
    model = dict(launch.model if launch else {}) | {k: v for k, v in manifest.model.items() if v is not None}
    name = answered or _first(model, "served", "asked", "name") or "unknown model"
    digest = _first(model, "file_sha256", "sha256")
    parts = [_first(model, "quantisation"), f"sha256 {digest[:12]}" if digest else _first(model, "revision")]
    return ", ".join([name, *[part for part in parts if part]])


def hardware_line(manifest: Manifest) -> str:
    """The hardware in words, client's side named as such; GPU or the lack of one where it is said."""
    facts = manifest.hardware
    parts = []
    for side in ("server", "client"):
        cpu, cores = facts.get(f"{side}_cpu_model"), facts.get(f"{side}_cores_usable") or facts.get(f"{side}_cores")
        if cpu or cores:
            whose = "client and server on one host" if facts.get("server_on_this_host") is True else side
            parts.append(f"{whose}, {cpu or 'CPU unknown'}, {cores or 'unknown'} cores")
    gpu = facts.get("gpu")
    if gpu:
        parts.append(f"GPU {gpu}")
    return "; ".join(parts) or "unknown"


def arm_name(manifest: Manifest) -> str | None:
    """The recipe's name, or the label of a server without one."""
    named = _first(manifest.arm, "name") if isinstance(manifest.arm, Mapping) else None
    return named or manifest.label


def _kinds(args: Mapping[str, Any]) -> tuple[str, ...] | None:
    kinds = _argument(args, "speculative.types")
    if isinstance(kinds, str):
        kinds = [kinds]
    return tuple(str(kind).replace("_", "-") for kind in kinds) if isinstance(kinds, list | tuple) else None


def _argument(args: Mapping[str, Any], name: str) -> Any:
    """The argument of this dotted name, wherever the launch's own grouping put it; None where it is not given."""
    return next((value for key, value in args.items() if name and (key == name or key.endswith(f".{name}"))), None)


def _first(fields: Any, *names: str) -> str | None:
    for name in names:
        value = fields.get(name) if isinstance(fields, Mapping) else None
        if value not in (None, ""):
            return str(value)
    return None


def _dotted(fields: Mapping[str, Any], lead: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{lead}{name}.")
        else:
            yield f"{lead}{name}", value
