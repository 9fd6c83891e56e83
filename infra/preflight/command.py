"""``python -m infra preflight``: will this arm start, and does its draft mean what its target means? Loads no weight.

Reads configuration, tokenizer and the headers of weight files, from an arm's own paths or from folders, and refuses
what an engine would refuse late, or would not notice. Exit codes: 0 nothing refused, 1 refused, 2 nothing to look at.
"""

import argparse
import json
import math
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from infra.launching.models import ModelError
from infra.launching.recipes import ArmError, load_arm
from infra.preflight.checkpoint import Checkpoint, CheckpointError, read_checkpoint
from infra.preflight.compatibility import vocabularies, vocabulary_rows
from infra.preflight.draft_heads import eagle3, is_eagle3, mtp
from infra.preflight.engine_opinions import ENGINES, NAMES, opinions
from infra.preflight.findings import Finding, refused
from infra.preflight.kv_cache import check_kv, check_scales
from infra.preflight.memory_estimate import GIB, OVERHEAD_GIB, Devices, check_memory
from infra.preflight.quantisation import check_quantisation
from infra.preflight.subject import KINDS, Subject, SubjectError, engine_name, of_arm, with_memory_here
from infra.provenance.model_hashes import shown_name

_COLUMNS = 140
_MAP_CHECKS = ("vocabulary sizes equal", "token-id maps equal")


def look(subject: Subject) -> tuple[Finding, ...]:
    """Every finding of a subject. Errors: CheckpointError where a path holds nothing to look at."""
    target = read_checkpoint(subject.target)
    draft = None if subject.draft is None else read_checkpoint(subject.draft)
    return tuple(_findings(subject, target, draft))


def _findings(subject: Subject, target: Checkpoint, draft: Checkpoint | None) -> Iterator[Finding]:
    yield from _files(target, "target", subject.metadata_only)
    if draft is not None:
        yield from _files(draft, "draft", subject.metadata_only)
    yield vocabulary_rows(target, "target")
    yield check_quantisation(target, subject.label, "target")
    if draft is not None:
        yield check_quantisation(draft, subject.draft_label, "draft")
        yield from _pair(subject, target, draft)
    elif subject.algorithm in ("draft", "eagle3"):
        seen = "the arm speculates with a draft and none is given"
        yield Finding(check="draft files", verdict="refuse", seen=seen, remedy="give --draft DIR")
    asked = subject.algorithm == "mtp" and draft is None
    yield from mtp(target, asked=asked, n_draft=subject.n_draft, engine=subject.engine)
    tokens = subject.context_tokens or _own_context(target)
    yield check_memory(target, draft, subject.devices, kv_dtype=subject.kv_dtype, n_tokens=tokens)
    yield check_kv(target, subject.kv_dtype, subject.devices.n)
    scales = check_scales(target, subject.kv_dtype)
    if scales is not None:
        yield scales


def _pair(subject: Subject, target: Checkpoint, draft: Checkpoint) -> Iterator[Finding]:
    if subject.algorithm == "eagle3" or (subject.algorithm != "none" and is_eagle3(draft)):
        yield from eagle3(target, draft)
    elif subject.algorithm in ("eagle", "mtp"):
        seen = f"a separate {subject.algorithm} head: no rules for its shapes here"
        yield Finding(check="draft head", verdict="unknown", seen=seen)
    else:
        yield vocabulary_rows(draft, "draft")
        for finding in vocabularies(target, draft, subject.engine):
            yield _mapped(finding) if subject.heterogeneous else finding
        for finding in opinions(target, draft, subject.engine):
            yield _mapped(finding) if subject.heterogeneous else finding


def _mapped(finding: Finding) -> Finding:
    """vLLM was told to map between vocabularies: it drafts the tokens that both have, and different maps are meant."""
    if finding.verdict != "refuse":
        return finding
    seen = f"{finding.seen}; use_heterogeneous_vocab is set: only tokens that both have are drafted"
    return replace(finding, verdict="caution", seen=seen, remedy="expect a lower acceptance")


def _files(model: Checkpoint, whose: str, metadata_only: bool) -> Iterator[Finding]:
    check = f"{whose} files"
    faults = [*model.faults, *([model.absent] if model.absent and not metadata_only else [])]
    notes = [*model.notes, *([model.absent] if model.absent and metadata_only else [])]
    facts: dict[str, Any] = {"faults": faults, "notes": notes, "architecture": model.architecture, "form": model.form}
    facts |= {"n_tensors": len(model.tensors), "n_weight_bytes": model.n_weight_bytes}
    named = f"{shown_name(model.path)}: {model.form}, {model.architecture or 'architecture not said'}"
    if faults:
        remedy = "mend the folder, then run this again"
        yield Finding(check=check, verdict="refuse", seen=f"{named}: " + "; ".join(faults), remedy=remedy, facts=facts)
    elif notes:
        yield Finding(check=check, verdict="caution", seen=f"{named}: " + "; ".join(notes), facts=facts)
    else:
        size = "" if model.n_weight_bytes is None else f", {model.n_weight_bytes / GIB:.2f} GiB of weights"
        yield Finding(check=check, verdict="pass", seen=f"{named}{size}, {len(model.tensors)} tensors", facts=facts)


def _own_context(model: Checkpoint) -> int | None:
    """Where nobody plans a context: at most 8,192 tokens, less where the model has less."""
    own = model.number("context_length") if model.gguf else model.number("max_position_embeddings")
    return None if own is None else min(own, 8192)


def as_json(subject: Subject, findings: tuple[Finding, ...]) -> dict[str, Any]:
    """One object: the verdict, the two verdicts on vocabularies by themselves, and every finding."""
    equal = {finding.check: finding.facts.get("equal") for finding in findings if finding.check in _MAP_CHECKS}
    first = next(
        (finding.facts.get("first_different") for finding in findings if finding.check == _MAP_CHECKS[1]), None
    )
    return {
        "arm": subject.arm,
        "engine": subject.engine,
        "algorithm": subject.algorithm,
        "target": shown_name(subject.target),
        "draft": None if subject.draft is None else shown_name(subject.draft),
        "verdict": "refuse" if refused(findings) else "good",
        "sizes_equal": equal.get(_MAP_CHECKS[0]),
        "id_maps_equal": equal.get(_MAP_CHECKS[1]),
        "first_different_ids": first,
        "refused": [finding.check for finding in findings if finding.verdict == "refuse"],
        "findings": [finding.as_json() for finding in findings],
    }


def table(subject: Subject, findings: tuple[Finding, ...]) -> list[str]:
    """The printed form: what was looked at, a line a finding with its remedy below, and the verdict."""
    width = max(len(finding.check) for finding in findings)
    engine = NAMES.get(subject.engine or "", "any engine")
    models = [shown_name(path) for path in (subject.target, subject.draft) if path is not None]
    lines = [f"{subject.arm or 'preflight'}: {' + '.join(models)}, {engine}, speculation: {subject.algorithm}"]
    for finding in findings:
        first = f"{finding.verdict.upper():<8}{finding.check:<{width}}  "
        lines += textwrap.wrap(finding.seen, _COLUMNS, initial_indent=first, subsequent_indent=" " * len(first))
        if finding.remedy is not None:
            lead = " " * len(first)
            lines += textwrap.wrap(
                f"-> {finding.remedy}", _COLUMNS, initial_indent=lead, subsequent_indent=lead + "   "
            )
    bad = [finding.check for finding in findings if finding.verdict == "refuse"]
    lines.append(f"REFUSED: {', '.join(bad)}" if bad else "GOOD: nothing is refused")
    return lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("arm", nargs="?", metavar="ARM", help="a recipe's name; or give --target, --draft and --engine")
    parser.add_argument("--target", type=Path, metavar="DIR", help="model folder or GGUF file (in place of the arm's)")
    parser.add_argument("--draft", type=Path, metavar="DIR", help="likewise for the draft model or head")
    parser.add_argument("--models", type=Path, metavar="DIR", help="where models lie by the name that the arm uses")
    parser.add_argument(
        "--engine", metavar="NAME", help=f"{', '.join(ENGINES)}; left out: what any of them refuses is refused"
    )
    parser.add_argument("--algorithm", choices=KINDS, help="kind of speculation (default: what the files are)")
    parser.add_argument("--quantisation", metavar="LABEL", help="what the target is said to be, e.g. awq; checked")
    parser.add_argument("--draft-quantisation", metavar="LABEL", help="likewise for the draft")
    parser.add_argument("--kv-dtype", metavar="TYPE", help="element type of the KV cache, e.g. fp8_e5m2 or q8_0/q8_0")
    parser.add_argument("--context-tokens", type=_count, metavar="N", help="tokens of KV cache to count (default 8192)")
    parser.add_argument("--num-draft-tokens", type=_count, metavar="N", help="tokens drafted a step")
    parser.add_argument("--device-memory-gib", type=_size, metavar="GIB", help="of one device (default: this host's)")
    parser.add_argument("--n-devices", type=_count, metavar="N", help="that the weights are split over")
    parser.add_argument("--memory-fraction", type=_size, metavar="X", help="of it that weights and cache may take")
    parser.add_argument("--overhead-gib", type=_size, metavar="GIB", help=f"a device, assumed ({OVERHEAD_GIB:g})")
    parser.add_argument("--n-gpu-layers", type=int, metavar="N", help="layers on the device (default: all)")
    parser.add_argument("--cpu-offload-gib", type=_size, metavar="GIB", help="a device, kept in the host's memory")
    parser.add_argument("--metadata-only", action="store_true", help="weight files that are not here yet are no fault")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def command(options: argparse.Namespace) -> int:
    """Run it: prints the table, or the object. Exit codes as the module says."""
    try:
        subject = _subject(options)
        findings = look(subject)
    except (ArmError, CheckpointError, ModelError, SubjectError) as error:
        sys.stderr.write(f"infra: {error}\n")
        return 2
    text = json.dumps(as_json(subject, findings)) if options.json else "\n".join(table(subject, findings))
    sys.stdout.write(text + "\n")
    return 1 if refused(findings) else 0


def _subject(options: argparse.Namespace) -> Subject:
    if options.arm is not None:
        found = of_arm(load_arm(options.arm), target=options.target, draft=options.draft, models=options.models)
    elif options.target is not None:
        found = _of_options(options)
    else:
        raise SubjectError("nothing to look at; give an ARM, or --target DIR with --draft DIR and --engine NAME")
    told = {
        "engine": None if options.engine is None else engine_name(options.engine),
        "algorithm": options.algorithm,
        "label": options.quantisation,
        "draft_label": options.draft_quantisation,
        "kv_dtype": options.kv_dtype,
        "context_tokens": options.context_tokens,
        "n_draft": options.num_draft_tokens,
        "metadata_only": options.metadata_only or None,
    }
    devices = {
        "memory_gib": options.device_memory_gib,
        "n": options.n_devices,
        "fraction": options.memory_fraction,
        "overhead_gib": options.overhead_gib,
        "n_gpu_layers": options.n_gpu_layers,
        "cpu_offload_gib": options.cpu_offload_gib,
    }
    chosen = replace(found.devices, **{name: value for name, value in devices.items() if value is not None})
    found = replace(found, **{name: value for name, value in told.items() if value is not None})
    return replace(found, devices=with_memory_here(chosen))


def _of_options(options: argparse.Namespace) -> Subject:
    """Folders without an arm: a head that looks like EAGLE-3 is one, any other draft is a model of its own."""
    algorithm = "none"
    if options.draft is not None:
        algorithm = "eagle3" if is_eagle3(read_checkpoint(options.draft)) else "draft"
    return Subject(
        arm=None,
        engine=None,
        algorithm=algorithm,
        target=options.target,
        draft=options.draft,
        devices=Devices(memory_gib=None),
    )


def _count(word: str) -> int:
    if not (word.isascii() and word.isdigit() and int(word)):
        raise argparse.ArgumentTypeError(f"{word!r} is no whole number above 0")
    return int(word)


def _size(word: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"{word!r} is no size above 0")
    return number


if __name__ == "__main__":
    own_parser = argparse.ArgumentParser(prog="python -m infra preflight")
    add_arguments(own_parser)
    sys.exit(command(own_parser.parse_args()))
