"""Do target and draft speak of the same tokens by the same ids? Sizes and id maps are two verdicts.

Engines differ in what they compare (see ``engine_opinions.py``); what stands here is this project's own verdict,
which is stricter: two models of equal size whose ids mean different tokens are refused on every engine. Enlarging a
vocabulary until the sizes agree is never advised: it hides the difference from the engine and leaves the ids alone.
"""

from collections.abc import Iterator

from infra.preflight.checkpoint import Checkpoint
from infra.preflight.findings import Finding
from infra.preflight.token_maps import Difference, differences

LLAMA_MAX_DIFFERENCE, LLAMA_FIRST_ID = 128, 5  # llama.cpp, common/speculative.cpp
_OTHER_DRAFT = (
    "choose a draft made for this target (do not edit or enlarge its vocabulary: the ids would stay different)"
)


def vocabularies(target: Checkpoint, draft: Checkpoint, engine: str | None) -> Iterator[Finding]:
    """Sizes, id maps and special tokens of a target and a draft model with a vocabulary of its own."""
    yield sizes(target, draft, engine)
    yield id_maps(target, draft, engine)
    yield special_tokens(target, draft, engine)


def sizes(target: Checkpoint, draft: Checkpoint, engine: str | None) -> Finding:
    ours, theirs = target.vocab_size, draft.vocab_size
    check, facts = "vocabulary sizes equal", {"target_vocab_size": ours, "draft_vocab_size": theirs}
    if ours is None or theirs is None:
        whose = "target" if ours is None else "draft"
        seen = f"the {whose} does not say its vocabulary's size"
        return Finding(check=check, verdict="unknown", seen=seen, remedy="fetch its config.json", facts=facts)
    if ours == theirs:
        return Finding(check=check, verdict="pass", seen=f"yes: {ours:,} each", facts={**facts, "equal": True})
    seen = f"no: target {ours:,}, draft {theirs:,}, difference {abs(ours - theirs):,}"
    facts |= {"equal": False}
    if engine == "llama.cpp" and abs(ours - theirs) <= LLAMA_MAX_DIFFERENCE:
        seen += f"; llama.cpp accepts differences up to {LLAMA_MAX_DIFFERENCE}"
        return Finding(check=check, verdict="caution", seen=seen, remedy="the id maps decide: see there", facts=facts)
    return Finding(check=check, verdict="refuse", seen=seen, remedy=_OTHER_DRAFT, facts=facts)


def id_maps(target: Checkpoint, draft: Checkpoint, engine: str | None) -> Finding:
    check = "token-id maps equal"
    for whose, model in (("target", target), ("draft", draft)):
        if model.tokens is None:
            seen = f"cannot be compared: of the {whose}'s tokenizer {model.why_no_tokens}"
            remedy = f"put the {whose}'s tokenizer.json into its folder: equal sizes alone prove nothing"
            return Finding(check=check, verdict="refuse", seen=seen, remedy=remedy, facts={"equal": None})
    assert target.tokens is not None
    assert draft.tokens is not None
    first, n_all = differences(target.tokens, draft.tokens)
    facts = {
        "equal": n_all == 0,
        "n_different": n_all,
        "first_different": [one._asdict() for one in first],
        "target_ids": len(target.tokens.texts),
        "draft_ids": len(draft.tokens.texts),
    }
    if n_all == 0:
        seen = f"yes: {len(target.tokens.texts):,} ids mean the same tokens"
        return Finding(check=check, verdict="pass", seen=seen, facts=facts)
    seen = f"no: {n_all:,} ids differ, first " + "; ".join(map(in_words, first[:3]))
    conflicting, n_one_sided = _kinds(target, draft)
    facts |= {"n_conflicting": conflicting, "n_known_to_one": n_one_sided}
    from_5, _ = differences(target.tokens, draft.tokens, start=LLAMA_FIRST_ID)
    sizes = [one.vocab_size for one in (target, draft) if one.vocab_size is not None]
    beyond = len(sizes) == 2 and all(one.id >= min(sizes) for one in from_5)
    if engine == "llama.cpp" and (not from_5 or (not conflicting and beyond)):
        seen += f"; llama.cpp compares ids from {LLAMA_FIRST_ID} on that both have, and these are equal"
        remedy = "expect no accepted token of those ids"
        return Finding(check=check, verdict="caution", seen=seen, remedy=remedy, facts=facts)
    if not conflicting and engine == "vllm":
        seen += "; no id means two things, some are known to one model alone"
        remedy = "expect no accepted token of those ids"
        return Finding(check=check, verdict="caution", seen=seen, remedy=remedy, facts=facts)
    return Finding(check=check, verdict="refuse", seen=seen, remedy=_OTHER_DRAFT, facts=facts)


def special_tokens(target: Checkpoint, draft: Checkpoint, engine: str | None) -> Finding:
    """Begin, end and padding ids, and whether they are added: llama.cpp refuses some differences, the rest is told."""
    ours, theirs = specials(target), specials(draft)
    named = {name: (ours.get(name), theirs.get(name)) for name in sorted(ours.keys() | theirs.keys())}
    told = {name: pair for name, pair in named.items() if None not in pair and pair[0] != pair[1]}
    facts = {"target": ours, "draft": theirs, "different": sorted(told)}
    words = ", ".join(f"{name}: target {a}, draft {b}" for name, (a, b) in told.items())
    decides = [name for name in ("bos", "eos") if f"add_{name}" in told or (name in told and ours.get(f"add_{name}"))]
    if decides and engine == "llama.cpp":
        remedy = "choose a draft with the target's special tokens"
        seen = f"{words}; llama.cpp refuses a draft whose {' and '.join(decides)} is added otherwise"
        return Finding(check="special tokens", verdict="refuse", seen=seen, remedy=remedy, facts=facts)
    if told:
        remedy = "expect drafts that end early or late; the target still decides what is sent"
        return Finding(check="special tokens", verdict="caution", seen=words, remedy=remedy, facts=facts)
    same = ", ".join(f"{name} {a}" for name, (a, b) in named.items() if a is not None and a == b)
    seen = f"equal as far as both say: {same}" if same else "neither says any"
    return Finding(check="special tokens", verdict="pass" if same else "unknown", seen=seen, facts=facts)


def specials(model: Checkpoint) -> dict[str, object]:
    """Special ids as the model says them: the tokenizer's own settings first, then generation and model configuration.

    ``eos`` of a model that ends on several ids is the sorted tuple of them under ``eos_all``.
    """
    found: dict[str, object] = {}
    tokens = model.tokens
    for name in ("bos", "eos", "pad"):
        said = tokens.special.get(name) if tokens is not None else None
        for source in (model.generation, model.config):
            value = source.get(f"{name}_token_id")
            if said is None and type(value) is int:
                said = value
        if said is not None:
            found[name] = said
    several = model.generation.get("eos_token_id") or model.config.get("eos_token_id")
    if isinstance(several, list) and all(type(one) is int for one in several):
        found["eos_all"] = tuple(sorted(several))
    for name in ("add_bos", "add_eos"):
        flag = getattr(tokens, name) if tokens is not None else None
        if flag is not None:
            found[name] = flag
    return found


def vocabulary_rows(model: Checkpoint, whose: str) -> Finding:
    """Does every id of the tokenizer have a row in the output matrix, and do configuration and matrix agree?"""
    check, tokens = f"vocabulary rows of the {whose}", model.tokens
    head = model.tensor("lm_head.weight", "output.weight") or model.tensor("embed_tokens.weight", "token_embd.weight")
    rows, said = (head.shape[0] if head is not None and head.shape else None), model.vocab_size
    facts = {"rows": rows, "matrix": head.name if head else None, "vocab_size": said}
    if tokens is None:
        remedy = f"put the {whose}'s tokenizer files into its folder"
        seen = f"of its tokenizer {model.why_no_tokens}"
        return Finding(check=check, verdict="refuse", seen=seen, remedy=remedy, facts=facts)
    facts |= {"max_id": tokens.max_id, "n_ids": len(tokens.texts)}
    there = rows if rows is not None else said
    if there is None:
        seen = "neither its matrix nor its vocabulary's size is known"
        return Finding(check=check, verdict="unknown", seen=seen, remedy="fetch its config.json", facts=facts)
    seen = f"{there:,} rows ({head.name if head and rows is not None else 'vocab_size'}), ids up to {tokens.max_id:,}"
    remedy = "fetch model and tokenizer of one revision"
    if rows is not None and said is not None and rows != said:
        seen += f", and vocab_size is {said:,}"
        return Finding(check=check, verdict="refuse", seen=seen, remedy=remedy, facts=facts)
    if tokens.max_id >= there:
        seen += f": {sum(i >= there for i in tokens.texts):,} ids have no row"
        return Finding(check=check, verdict="refuse", seen=seen, remedy=remedy, facts=facts)
    spare = there - len(tokens.texts)
    seen += f"; {spare:,} rows stand for nothing" if spare else ""
    return Finding(check=check, verdict="pass", seen=seen, facts=facts | {"n_spare_rows": spare})


def in_words(one: Difference) -> str:
    return f"{one.id}: target {_quoted(one.target)}, draft {_quoted(one.draft)}"


def _quoted(text: str | None) -> str:
    return "nothing" if text is None else repr(text)


def _kinds(target: Checkpoint, draft: Checkpoint) -> tuple[int, int]:
    """How many ids mean two things, and how many only one of the models knows."""
    assert target.tokens is not None
    assert draft.tokens is not None
    ours, theirs = target.tokens.texts, draft.tokens.texts
    conflicting = sum(text != theirs[i] for i, text in ours.items() if i in theirs)
    return conflicting, len(ours.keys() ^ theirs.keys())
