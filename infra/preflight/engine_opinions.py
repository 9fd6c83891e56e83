"""What an engine itself would say of a target and a draft model, by what its source compares.

Read from the sources of SGLang 0.5.19 and 0.5.23, vLLM 0.33.0, llama.cpp b11434; that SGLang 0.5.17 refuses unequal
sizes and is silent on a permuted map was seen on a real server, and so was the embedded llama.cpp's log line. An
engine's "accept" is no evidence that the pair fits: this project's own verdicts stand beside it.
"""

from collections.abc import Iterator

from infra.preflight.checkpoint import Checkpoint
from infra.preflight.compatibility import LLAMA_FIRST_ID, LLAMA_MAX_DIFFERENCE, in_words, specials
from infra.preflight.findings import Finding, Verdict
from infra.preflight.token_maps import differences

ENGINES = ("sglang", "vllm", "llama.cpp")
NAMES = {"sglang": "SGLang", "vllm": "vLLM", "llama.cpp": "llama.cpp"}


def opinions(target: Checkpoint, draft: Checkpoint, engine: str | None) -> Iterator[Finding]:
    """One finding for each engine. The chosen one's refusal refuses, the others inform; without a choice each one's."""
    for name in ENGINES:
        accepts, words = {"sglang": _sglang, "vllm": _vllm, "llama.cpp": _llamacpp}[name](target, draft)
        chosen = engine in (None, name)
        says = {True: "accepts", False: "refuses", None: "not known"}[accepts]
        yield Finding(
            check=f"{NAMES[name]} would",
            verdict=_verdict(chosen, accepts),
            seen=f"{'accept' if accepts else 'refuse' if accepts is False else 'say what is not known'}: {words}",
            remedy="choose a draft made for this target" if chosen and accepts is False else None,
            facts={"engine": name, "chosen": chosen, "says": says},
        )


def _verdict(chosen: bool, accepts: bool | None) -> Verdict:
    if not chosen:
        return "info"
    return "unknown" if accepts is None else "pass" if accepts else "refuse"


def _sizes(target: Checkpoint, draft: Checkpoint) -> tuple[int, int] | None:
    ours, theirs = target.vocab_size, draft.vocab_size
    return None if ours is None or theirs is None else (ours, theirs)


def _maps_differ(target: Checkpoint, draft: Checkpoint) -> bool | None:
    if target.tokens is None or draft.tokens is None:
        return None
    return differences(target.tokens, draft.tokens)[1] > 0


def _sglang(target: Checkpoint, draft: Checkpoint) -> tuple[bool | None, str]:
    sizes = _sizes(target, draft)
    if sizes is None:
        return None, "a vocabulary's size is not known"
    if sizes[0] != sizes[1]:
        return False, (
            "STANDALONE speculative decoding requires the draft model to share the same vocabulary as the target "
            f"model, but got target vocab_size={sizes[0]} and draft vocab_size={sizes[1]}. (after loading both)"
        )
    if _maps_differ(target, draft):
        return True, (
            "0.5.17 compares sizes alone and lets this pair through (seen); 0.5.19 and later also compare the maps "
            "and refuse it, where their draft worker has a tokenizer"
        )
    return True, "it compares sizes, from 0.5.19 on the maps too"


def _vllm(target: Checkpoint, draft: Checkpoint) -> tuple[bool | None, str]:
    sizes = _sizes(target, draft)
    if sizes is None:
        return None, "a vocabulary's size is not known"
    if sizes[0] != sizes[1]:
        return False, (
            "Target and draft model should have the same vocabulary size. Target model vocab_size="
            f"{sizes[0]}. Draft model vocab_size={sizes[1]}. (unless use_heterogeneous_vocab is set)"
        )
    if _maps_differ(target, draft):
        return True, "it compares sizes alone and lets this pair through"
    return True, "it compares sizes alone"


def _llamacpp(target: Checkpoint, draft: Checkpoint) -> tuple[bool | None, str]:
    """Rules of common_speculative_are_compatible: type, special tokens that are added, size, text from id 5 on."""
    if target.tokens is None or draft.tokens is None:
        return None, "it compares token texts, and a tokenizer cannot be read"
    throws = "draft model vocab type must match target model to use speculation"
    if target.gguf and draft.gguf and target.tokens.kind != draft.tokens.kind:
        return False, f"{throws} ({target.tokens.kind} and {draft.tokens.kind})"
    ours, theirs = specials(target), specials(draft)
    for name in ("bos", "eos"):
        adds = (bool(ours.get(f"add_{name}")), bool(theirs.get(f"add_{name}")))
        if adds[0] != adds[1] or (adds[0] and ours.get(name) != theirs.get(name)):
            return False, f"draft model {name} tokens must match target model to use speculation"
    sizes = _sizes(target, draft)
    if sizes is None:
        return None, "a vocabulary's size is not known"
    if abs(sizes[0] - sizes[1]) > LLAMA_MAX_DIFFERENCE:
        return (
            False,
            f"{throws} (sizes differ by {abs(sizes[0] - sizes[1])}, at most {LLAMA_MAX_DIFFERENCE} are allowed)",
        )
    found, _ = differences(target.tokens, draft.tokens, start=LLAMA_FIRST_ID, limit=1 << 20)
    inside = [one for one in found if one.id < min(sizes)]
    if inside:
        logged = "the target and draft vocabs are not compatible"
        return False, f"{logged}; the embedded server then serves without speculation (token {in_words(inside[0])})"
    return True, f"sizes differ by {abs(sizes[0] - sizes[1])}, texts from id {LLAMA_FIRST_ID} on are equal"
