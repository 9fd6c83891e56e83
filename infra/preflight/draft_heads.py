"""Heads that draft from the target's hidden states: EAGLE-3 checkpoints and multi-token prediction (MTP) layers.

What must fit is read from configuration and tensor shapes (EAGLE-3: Li et al. 2025, arXiv 2503.01840): the head takes
three of the target's hidden states side by side, so its first projection has 3 x the target's width as input; it may
have a vocabulary of its own, which ``d2t`` maps to the target's ids (target id = draft id + d2t[draft id]).
"""

import itertools
from collections.abc import Iterator

from infra.preflight.checkpoint import Checkpoint
from infra.preflight.findings import Finding, Verdict
from infra.preflight.weight_headers import Tensor, read_values

N_CAPTURED = 3
_WRONG_HEAD = "take the head that was trained for this very target"


def is_eagle3(draft: Checkpoint) -> bool:
    named = f"{draft.architecture} {draft.config.get('speculators_model_type')}".lower()
    return "eagle3" in named or draft.config.get("draft_vocab_size") is not None


def eagle3(target: Checkpoint, draft: Checkpoint) -> Iterator[Finding]:
    """Width, captured layers, vocabulary and maps of an EAGLE-3 head against its target."""
    yield _width(target, draft)
    yield _layers(target, draft)
    yield from _vocabulary(target, draft)


def _width(target: Checkpoint, draft: Checkpoint) -> Finding:
    check, ours = "EAGLE-3 hidden size", target.hidden_size
    said = draft.number("target_hidden_size", "hidden_size")
    fc, query = (
        draft.tensor("fc.weight"),
        draft.tensor("midlayer.self_attn.q_proj.weight", "layers.0.self_attn.q_proj.weight"),
    )
    facts = {"target_hidden_size": ours, "draft_expects": said, "fc_shape": list(fc.shape) if fc else None}
    if ours is None or said is None:
        return Finding(check=check, verdict="unknown", seen="a hidden size is not said", facts=facts)
    wrong = []
    if said != ours:
        wrong.append(f"the head expects hidden states of {said}, the target's have {ours}")
    if fc is not None and len(fc.shape) == 2 and fc.shape[1] != N_CAPTURED * ours:
        wrong.append(f"fc.weight takes {fc.shape[1]} inputs, {N_CAPTURED} x {ours} = {N_CAPTURED * ours} come")
    own = draft.number("hidden_size")
    if query is not None and own is not None and len(query.shape) == 2 and query.shape[1] not in (2 * own, own):
        wrong.append(f"its attention takes {query.shape[1]} inputs, 2 x {own} come (embedding and state)")
    if wrong:
        return Finding(check=check, verdict="refuse", seen="; ".join(wrong), remedy=_WRONG_HEAD, facts=facts)
    shown = f", fc.weight takes {N_CAPTURED} x {ours}" if fc is not None else ", no fc.weight to look at"
    return Finding(check=check, verdict="pass" if fc is not None else "caution", seen=f"{ours}{shown}", facts=facts)


def _layers(target: Checkpoint, draft: Checkpoint) -> Finding:
    check, n_layers = "EAGLE-3 layers to capture", target.n_layers
    inner = draft.config.get("eagle_config")
    said = draft.config.get("eagle_aux_hidden_state_layer_ids")
    if said is None and isinstance(inner, dict):
        said = inner.get("eagle_aux_hidden_state_layer_ids")
    if n_layers is None:
        return Finding(check=check, verdict="unknown", seen="the target does not say its number of layers")
    chosen = said if isinstance(said, list) else [2, n_layers // 2, n_layers - 3]
    facts = {"layer_ids": chosen, "from": "head" if said is not None else "engines' default", "target_layers": n_layers}
    seen = f"{', '.join(map(str, chosen))} of {n_layers} layers ({facts['from']})"
    bad = [one for one in chosen if type(one) is not int or not 0 <= one < n_layers]
    if bad or len(set(chosen)) != N_CAPTURED or not chosen:
        wrong = f"{bad[0]} is no layer of the target" if bad else f"{N_CAPTURED} different layers are needed"
        return Finding(check=check, verdict="refuse", seen=f"{seen}: {wrong}", remedy=_WRONG_HEAD, facts=facts)
    seen += "; whether the engine's model class can capture them is not seen from files"
    return Finding(check=check, verdict="pass", seen=seen, facts=facts)


def _vocabulary(target: Checkpoint, draft: Checkpoint) -> Iterator[Finding]:
    check, ours = "EAGLE-3 vocabulary", target.vocab_size
    whole = draft.number("target_vocab_size", "vocab_size")
    own = draft.number("draft_vocab_size") or whole
    facts = {"target_vocab_size": ours, "head_vocab_size": whole, "draft_vocab_size": own}
    if ours is None or whole is None or own is None:
        yield Finding(check=check, verdict="unknown", seen="a vocabulary's size is not said", facts=facts)
        return
    rows = draft.tensor("lm_head.weight")
    wrong = []
    if whole != ours:
        wrong.append(f"the head was made for a vocabulary of {whole:,}, the target's has {ours:,}")
    if rows is not None and rows.shape[:1] != (own,):
        wrong.append(f"its lm_head has shape {list(rows.shape)}, draft_vocab_size is {own:,}")
    seen = "; ".join(wrong) or f"{own:,} of the target's {ours:,} ids are drafted"
    remedy = _WRONG_HEAD if wrong else None
    yield Finding(check=check, verdict="refuse" if wrong else "pass", seen=seen, remedy=remedy, facts=facts)
    yield _maps(draft, own, ours)


def _maps(draft: Checkpoint, own: int, target_size: int) -> Finding:
    """The maps between the two vocabularies: shapes from the header, and their ids, which are no weights."""
    check, d2t, t2d = "draft-to-target map", draft.tensor("d2t"), draft.tensor("t2d")
    facts = {"d2t": _told(d2t), "t2d": _told(t2d)}
    if d2t is None:
        if own == target_size:
            return Finding(check=check, verdict="pass", seen="none is needed: one vocabulary", facts=facts)
        if not draft.tensors:
            return Finding(check=check, verdict="unknown", seen="no weight file of the head is here", facts=facts)
        seen = f"the head drafts {own:,} ids of {target_size:,} and has no d2t to map them"
        return Finding(check=check, verdict="refuse", seen=seen, remedy=_WRONG_HEAD, facts=facts)
    wrong = _wrong_maps(d2t, t2d, own, target_size)
    if wrong is not None:
        return Finding(check=check, verdict="refuse", seen=wrong, remedy=_WRONG_HEAD, facts=facts)
    read = read_values(d2t) is not None
    seen = f"d2t {_told(d2t)}" + (", every id maps into the target's" if read else "; its ids are not here to look at")
    return Finding(check=check, verdict="pass" if read else "caution", seen=seen, facts=facts)


def _wrong_maps(d2t: Tensor, t2d: Tensor | None, own: int, target_size: int) -> str | None:
    if d2t.shape != (own,):
        return f"d2t has shape {list(d2t.shape)}, draft_vocab_size is {own:,}"
    if t2d is not None and t2d.shape != (target_size,):
        return f"t2d has shape {list(t2d.shape)}, the target's vocabulary {target_size:,}"
    offsets = read_values(d2t)
    if offsets is None:
        return None if d2t.dtype.startswith("I") else f"d2t holds {d2t.dtype}, no ids"
    ids = [i + offset for i, offset in enumerate(offsets)]
    outside = next((i for i, one in enumerate(ids) if not 0 <= one < target_size), None)
    if outside is not None:
        return f"d2t maps draft id {outside} to {ids[outside]}, and the target has {target_size:,} ids"
    if len(set(ids)) != len(ids):
        return f"d2t maps {len(ids) - len(set(ids)):,} draft ids to a target id that another maps to"
    flags = read_values(t2d) if t2d is not None and t2d.dtype in ("BOOL", "U8", "I8") else None
    if flags is not None and {i for i, flag in enumerate(flags) if flag} != set(ids):
        return f"t2d marks {sum(map(bool, flags)):,} target ids, and they are not the {len(ids):,} that d2t maps to"
    return None


def mtp(target: Checkpoint, *, asked: bool, n_draft: int | None, engine: str | None) -> Iterator[Finding]:
    """The target's own prediction layers: how many it says, whether their tensors are there, and their width."""
    check = "MTP layers"
    names = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", "n_predict", "nextn_predict_layers")
    said = target.number(*names) or 0
    found = [one for one in target.tensors if _is_mtp(one.name, target.n_layers if said else None)]
    facts = {"layers": said, "n_tensors": len(found) if target.tensors else None}
    if not said:
        if asked:
            seen = "the target says no MTP layer" + (f", though {found[0].name} is there" if found else "")
            yield Finding(check=check, verdict="refuse", seen=seen, remedy="take a target with them", facts=facts)
        return
    wrong = None
    if target.tensors and not found:
        wrong = f"the configuration says {said}, and none of their tensors is there (converted without them?)"
    width, hidden = (
        next((one for one in found if one.name.endswith(("eh_proj.weight", "mtp.fc.weight"))), None),
        target.hidden_size,
    )
    if width is not None and hidden is not None and len(width.shape) == 2 and width.shape[1] != 2 * hidden:
        wrong = f"{width.name} takes {width.shape[1]} inputs, 2 x {hidden} come"
    if asked and engine == "vllm" and n_draft is not None and n_draft % said:
        wrong = f"num_speculative_tokens:{n_draft} must be divisible by n_predict={said}"
    verdict: Verdict = "pass" if wrong is None else "refuse" if asked else "caution"
    seen = wrong or f"{said} said" + (f", {len(found)} tensors of them" if target.tensors else ", no tensors here")
    remedy = None if wrong is None else "take a checkpoint with them, or speculate in another way"
    yield Finding(check=check, verdict=verdict, seen=seen, remedy=remedy, facts=facts)


def _is_mtp(name: str, n_layers: int | None) -> bool:
    parts = name.split(".")
    extra = n_layers is not None and any(a == "layers" and b == str(n_layers) for a, b in itertools.pairwise(parts))
    return extra or "mtp" in parts or "nextn" in parts or any(part.startswith(("eh_proj", "mtp_")) for part in parts)


def _told(tensor: Tensor | None) -> str | None:
    return None if tensor is None else f"{tensor.dtype}{list(tensor.shape)}"
