"""What does not fit together in a run folder, found from its contents alone (of the seal only whether it is there)."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator

from evidence import frames
from evidence.contents import Contents
from evidence.counts import differences
from evidence.errors import Problem
from evidence.kept import elsewhere
from evidence.layout import PLAN, SEAL, STARTED, WORKERS
from evidence.level_checks import level_problems
from evidence.lines import Located
from evidence.reading import find_frames
from evidence.records import Json, Request, Started

_N_NAMED = 5  # ids named in one message


def check_contents(contents: Contents) -> tuple[Problem, ...]:
    """Every problem of the contents, those found on reading first."""
    problems = list(contents.problems)
    if contents.seal is None and not any(one.file == SEAL for one in problems):
        problems.append(
            Problem("seal_missing", "the folder was never closed: its writer was killed, or is at work", SEAL)
        )
    problems += [
        Problem("torn_tail", f"{n_bytes} bytes of a half-written last line or frame", name)
        for name, n_bytes in sorted(contents.torn.items())
    ]
    problems += _plan(contents)
    problems += _requests(contents)
    problems += level_problems(contents)
    problems += _wire(contents)
    return tuple(problems)


def summarised(problems: Iterable[Problem]) -> list[str]:
    """One line for each kind of problem: the first of it, and how many more there are."""
    by_code: dict[str, list[Problem]] = defaultdict(list)
    for problem in problems:
        by_code[problem.code].append(problem)
    return [str(one[0]) + (f" (and {len(one) - 1} more of this kind)" if one[1:] else "") for one in by_code.values()]


def _plan(contents: Contents) -> Iterator[Problem]:
    manifest, digest = contents.manifest, contents.plan_sha256
    if manifest is not None and digest is not None:
        if digest != manifest.plan_sha256:
            detail = f"its SHA-256 is {digest}, the manifest's plan_sha256 {manifest.plan_sha256}"
            yield Problem("plan_digest_mismatch", detail, PLAN)
        if len(contents.plan) != manifest.n_planned:
            yield Problem(
                "plan_count_mismatch", f"{len(contents.plan)} lines, the manifest says {manifest.n_planned}", PLAN
            )
    seen: set[str] = set()
    for line in contents.plan:
        if line.plan_id in seen:
            yield Problem("plan_id_duplicate", f"plan id {line.plan_id!r} stands twice", PLAN, line.line)
        seen.add(line.plan_id)
    begun = {one.record.plan_id for one in contents.started} | {one.record.plan_id for one in contents.requests}
    away = elsewhere(contents.path, contents.kept)
    dealt_away = [
        plan_id
        for one in contents.workers
        if one.record.event == "dealt" and one.record.worker in away
        for plan_id in one.record.plan_ids
    ]
    begun.update(dealt_away)
    waiting = [line.plan_id for line in contents.plan if line.plan_id not in begun]
    if waiting:
        yield Problem(
            "planned_not_started", f"{len(waiting)} planned requests were never started: {_named(waiting)}", PLAN
        )
    n_away = len(dealt_away) - sum(one.totals.started for one in away.values())
    if n_away > 0:
        detail = f"{n_away} requests dealt to workers whose lines are elsewhere were never started"
        yield Problem("planned_not_started", detail, PLAN)


def _requests(contents: Contents) -> Iterator[Problem]:
    planned = {line.plan_id: line.fields for line in contents.plan}
    run_id = None if contents.manifest is None else contents.manifest.run_id
    yield from _sequences(contents.started, run_id)
    yield from _sequences(contents.requests, run_id)
    began: dict[str, Located[Started]] = {}
    starts: dict[tuple[int, int], str] = {}
    for one in contents.started:
        started = one.record
        starts.setdefault((started.worker, started.sequence), started.plan_id)
        if planned and started.plan_id not in planned:
            yield Problem("plan_id_unknown", f"plan id {started.plan_id!r} is not in the plan", one.file, one.line)
        if started.plan_id in began:
            before = began[started.plan_id]
            detail = f"plan id {started.plan_id!r} was started before, at {before.file}:{before.line}"
            yield Problem("started_twice", detail, one.file, one.line)
        began.setdefault(started.plan_id, one)
    for ended in contents.requests:
        yield from _request(ended, planned.get(ended.record.plan_id), starts)
    over = {(one.record.worker, one.record.sequence) for one in contents.requests}
    for one in contents.started:
        if (one.record.worker, one.record.sequence) not in over:
            detail = f"request {one.record.sequence} ({one.record.plan_id!r}) was started and no line says how it ended"
            yield Problem("unfinished", detail, one.file, one.line)
    gaps: dict[int, set[int]] = defaultdict(set)
    for worker, sequence in over | starts.keys():
        gaps[worker].add(sequence)
    for worker, sequences in sorted(gaps.items()):
        missing = sorted(set(range(max(sequences) + 1)) - sequences)[:_N_NAMED]
        if missing:
            detail = f"no line has sequence {_named(map(str, missing))}"
            yield Problem("sequence_gap", detail, f"{WORKERS}/{worker}/{STARTED}")
    strangers = [(s.file, s.line, s.record.run_id) for s in contents.scrapes if s.record.run_id != run_id]
    strangers += [(w.file, w.line, w.record.run_id) for w in contents.windows if w.record.run_id != run_id]
    strangers += [(g.file, g.line, g.record.run_id) for g in contents.gpu if g.record.run_id != run_id]
    strangers += [(one.file, one.line, one.record.run_id) for one in contents.levels if one.record.run_id != run_id]
    strangers += [(one.file, one.line, one.record.run_id) for one in contents.workers if one.record.run_id != run_id]
    strangers += [(one.file, one.line, one.record.run_id) for one in contents.clocks if one.record.run_id != run_id]
    for file, number, other in strangers if run_id is not None else ():
        yield Problem("wrong_id", f"run id {other!r}, not {run_id!r}", file, number)


def _sequences(
    lines: tuple[Located[Started], ...] | tuple[Located[Request], ...], run_id: str | None
) -> Iterator[Problem]:
    """Each line in its own worker's file, of this run, with a sequence that no line before it has."""
    seen: set[tuple[str, int]] = set()
    for file, number, record in lines:
        if (file, record.sequence) in seen:
            yield Problem("sequence_duplicate", f"sequence {record.sequence} stands twice", file, number)
        seen.add((file, record.sequence))
        if file.split("/")[1] != str(record.worker):
            yield Problem("wrong_worker", f"a line of worker {record.worker}", file, number)
        if run_id is not None and record.run_id != run_id:
            yield Problem("wrong_id", f"run id {record.run_id!r}, not {run_id!r}", file, number)


def _request(
    located: Located[Request], planned: dict[str, Json] | None, starts: dict[tuple[int, int], str]
) -> Iterator[Problem]:
    file, number, request = located
    start = starts.get((request.worker, request.sequence))
    if start is None:
        detail = f"request {request.sequence} ({request.plan_id!r}) ended and no line says that it started"
        yield Problem("ended_without_started", detail, file, number)
    elif start != request.plan_id:
        detail = f"request {request.sequence} is {request.plan_id!r} here and {start!r} where it started"
        yield Problem("ended_without_started", detail, file, number)
    if planned is None:
        yield Problem("plan_id_unknown", f"plan id {request.plan_id!r} is not in the plan", file, number)
    else:
        for name, there, in_plan in differences(request, planned):
            yield Problem("differs_from_plan", f"{name} is {there!r}, in the plan {in_plan!r}", file, number)
    digest = hashlib.sha256(request.output_text.encode()).hexdigest()
    if digest != request.output_sha256:
        yield Problem("output_sha256_mismatch", f"{request.output_sha256}, but the text has {digest}", file, number)
    if request.wire is None and request.wire_missing is None:
        yield Problem("wire_without_reason", "neither raw segments nor the reason there are none", file, number)


def _wire(contents: Contents) -> Iterator[Problem]:
    """Each reference names whole frames of its own request, and every frame of an ended request is named by it."""
    named = {name: bytearray(len(index.offsets)) for name, index in contents.wire.items()}  # 1 for each frame named
    for file, number, request in contents.requests:
        if request.wire is None:
            continue
        index = contents.wire.get(request.wire.file)
        span = None if index is None else index.span(request.wire.offset, request.wire.n_bytes)
        if index is None or span is None or len(span) != request.wire.n_segments:
            found = find_frames(contents.path, request.wire)
            if isinstance(found, Problem):
                yield found._replace(file=file, line=number)
                continue
            sequences = [frame.sequence for frame in found]
        else:
            sequences = index.sequences[span.start : span.stop].tolist()
            named[request.wire.file][span.start : span.stop] = b"\1" * len(span)
        strangers = [sequence for sequence in sequences if sequence != request.sequence]
        if strangers or not request.wire.file.startswith(f"{WORKERS}/{request.worker}/"):
            detail = f"the frames named belong to request {strangers[0] if strangers else request.wire.file}"
            yield Problem("wire_frames_mismatch", detail, file, number)
    for name in sorted(contents.wire):
        yield from _unreferenced(name, contents.wire[name], named[name])


def _unreferenced(name: str, index: frames.Index, named: bytearray) -> Iterator[Problem]:
    if 0 in named:
        ends = [*index.offsets[1:], index.end]
        stray = [place for place, seen in enumerate(named) if not seen]
        n_bytes = sum(ends[place] - index.offsets[place] for place in stray)
        requests = {index.sequences[place] for place in stray}
        detail = f"{n_bytes} bytes that no request names, of request {_named(map(str, sorted(requests)))}"
        yield Problem("wire_unreferenced", detail, name)


def _named(ids: Iterable[str]) -> str:
    listed = list(ids)
    return ", ".join(listed[:_N_NAMED]) + (f" and {len(listed) - _N_NAMED} more" if len(listed) > _N_NAMED else "")
