"""Small synthetic studies of the baseline ``base`` and one or more arms, written through evidence's own writers.

Rates, texts and everything else of a cell are functions of arm, role, pair and prompt, so that a test says what it
wants and the folder is made as a study makes it: a launch and a run for each cell, all sealed.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evidence.launch_folder import LaunchWriter
from evidence.records import Request
from evidence.study_folder import StudyWriter
from evidence.study_records import Cell, Study
from tests import evidence_samples
from tests.run_factory import TEXT, UNIX_S, llamacpp_scrape, make_run, request

N_TOKENS = 10
CHARS_A_TOKEN = 2
DRAFT_TYPES = ["draft-simple"]


class At(NamedTuple):
    """Where in a study a request stands."""

    arm: str
    role: str
    pair: int
    prompt: str
    place: int  # of the prompt, from 0
    nth: int = 0  # pass over the prompts


Rate = Callable[[At], float]
Text = Callable[[At], str]
Changes = Callable[[At], Mapping[str, Any]]


def steady(at: At) -> float:
    """50 tokens a second, a little apart by launch and prompt; ``fast`` is 1.5 times, ``slow`` 0.7 times that."""
    factor = {"fast": 1.5, "slow": 0.7}.get(at.arm, 1.0)
    own = (at.pair * at.pair + 1) * sum(map(ord, at.arm + at.role)) % 7
    launch = 1 + 0.001 * own
    return 50.0 * factor * launch * (1 + 0.002 * ((at.place * 7 + at.pair * 3) % 5))


def same_text(at: At) -> str:
    """Twenty characters, two a token, the same in every arm."""
    return f"{at.prompt} says the same!!!!!"[: N_TOKENS * CHARS_A_TOKEN]


def nothing(_: At) -> Mapping[str, Any]:
    return {}


def answer(at: At, rate: Rate, text: Text, changes: Changes) -> Request:
    """One completed request at a rate, a token a chunk."""
    said = text(at)
    n_tokens = -(-len(said) // CHARS_A_TOKEN)
    marks = [
        (0.1 + token / rate(at), token, token + 1, len(said[token * CHARS_A_TOKEN : (token + 1) * CHARS_A_TOKEN]))
        for token in range(n_tokens)
    ]
    timings = {"predicted_n": n_tokens, "predicted_ms": 1000 * n_tokens / rate(at), "prompt_ms": 80.0, "cache_n": 0}
    fields: dict[str, Any] = {
        "prompt_id": at.prompt,
        "domain": at.prompt.partition("_")[0],
        "chunks": marks,
        "output_text": said,
        "server_fields": {"timings": timings},
    }
    own = dict(changes(at))
    timings |= own.pop("timings", {})
    return request(**(fields | own))


def make_study(
    root: Path,
    *,
    arms: Sequence[str] = ("base", "fast"),
    launches: int = 4,
    control: int = 1,
    prompts: Sequence[str] = ("code_01", "code_02", "json_01", "json_02", "prose_01", "prose_02"),
    passes: int = 1,
    rate: Rate = steady,
    text: Text = same_text,
    changes: Changes = nothing,
    manifest: Callable[[At], Mapping[str, Any]] = nothing,
    run: Callable[[At], Mapping[str, Any]] = nothing,
    requests: Callable[[At], Sequence[Request]] | None = None,
    failed: Mapping[tuple[str, int], tuple[str, str]] | None = None,
    dropped: Iterable[tuple[str, int]] = (),
    speculative: Iterable[str] = (),
    checks: Mapping[str, Any] | None = None,
    seal: bool = True,
    **study: Any,
) -> Path:
    """A study's folder. ``failed`` gives stage and symptom by (arm, pair); ``manifest`` and ``run`` change a cell's
    manifest and what else ``make_run`` takes, ``changes`` its requests, and ``requests`` makes a cell's requests
    itself; ``study`` the record of the study."""
    cells = []
    for pair in range(launches):
        slots = [(arms[0], "baseline"), *[(arm, "arm") for arm in arms[1:]]]
        slots += [(arms[0], "control")] if pair < control else []
        for arm, role in slots:
            cells.append(_cell(len(cells), pair, arm, role))
    fields = _study(arms, launches, control, passes) | study
    writer = StudyWriter.create(root, Study(**fields, cells=tuple(cells)))
    done = []
    for cell in cells:
        lost = (failed or {}).get((cell.arm, cell.pair)) if cell.role != "control" else None
        if (cell.arm, cell.pair) in set(dropped):
            end = {"state": "dropped", "symptom": "dropped: the budget of 5 minutes would be passed"}
        elif fields["status"] == "planned":
            end = {}
        else:
            launch = _launch(writer.launches, cell, lost, cell.arm in set(speculative))
            end = {"launch_dir": f"launches/{launch}", "attempt": 1, "started_at_unix_s": UNIX_S}
            if lost is not None:
                end |= {"state": "failed", "stage": lost[0], "symptom": lost[1]}
            else:
                at = At(cell.arm, cell.role, cell.pair, "", 0)
                made = (
                    [
                        answer(at._replace(prompt=prompt, place=place, nth=nth), rate, text, changes).model_copy(
                            update={"pass_index": nth, "repeat": nth}
                        )
                        for nth in range(passes)
                        for place, prompt in enumerate(_ordered(prompts, cell.pair))
                    ]
                    if requests is None
                    else list(requests(at))
                )
                path = _run(writer.runs, cell, launch, made, dict(manifest(at)), dict(run(at)), checks, speculative)
                end |= {"state": "done", "run_dir": f"runs/{path.name}", "took_s": 10.0, "ended_at_unix_s": UNIX_S + 9}
        done.append(cell.model_copy(update=end))
    record = Study(**fields, cells=tuple(done))
    if seal:
        writer.seal(record, UNIX_S + 1000)
    else:
        writer.update(record)
        writer.close()
    return writer.path


def _ordered(prompts: Sequence[str], pair: int) -> list[str]:
    """Another order in each pair, the same within it."""
    return [*prompts[pair % len(prompts) :], *prompts[: pair % len(prompts)]]


def _cell(index: int, pair: int, arm: str, role: Any) -> Cell:
    return Cell(
        index=index,
        pair=pair,
        arm=arm,
        role=role,
        order_seed=pair,
        state="planned",
        attempt=0,
        launch_dir=None,
        run_dir=None,
        stage=None,
        symptom=None,
        started_at_unix_s=None,
        ended_at_unix_s=None,
        took_s=None,
    )


def _study(arms: Sequence[str], launches: int, control: int, passes: int) -> dict[str, Any]:
    return {
        "study_id": "study-test",
        "name": "tiny",
        "created_at_unix_s": UNIX_S,
        "file": "scenarios/tiny-study.toml",
        "file_sha256": "0" * 64,
        "scenario": {"name": "tiny", "kind": "sequential"},
        "scenario_file": "tiny.toml",
        "scenario_sha256": "0" * 64,
        "prompts_sha256": {},
        "baseline": arms[0],
        "arms": tuple(arms),
        "launches": launches,
        "passes": passes,
        "control_launches": control,
        "order": "randomised",
        "seed": 1,
        "status": "to-run",
        "budget_minutes": None,
        "drop_order": ("launches", "control"),
        "smokes": (),
        "noticed": (),
    }


def _arm(name: str, speculative: bool) -> dict[str, Any]:
    kinds = DRAFT_TYPES if speculative else ["none"]
    args = {"speculative.types": kinds, "n_ctx": 4096} | ({"speculative.draft.n_max": 4} if speculative else {})
    return {"name": name, "engine": "llama.cpp embedded", "args": args, "varied": {"keys": ["speculative.types"]}}


def _launch(folder: Path, cell: Cell, lost: tuple[str, str] | None, speculative: bool) -> str:
    launch_id = f"launch-{cell.index:03d}"
    ends: dict[str, Any] = {"stage": "ready", "outcome": "stopped", "symptom": None, "evidence_grade": None}
    if lost is not None:
        ends = {"stage": lost[0], "outcome": "failed", "symptom": lost[1], "evidence_grade": "trace held"}
    launch = evidence_samples.launch(
        launch_id=launch_id,
        arm=_arm(cell.arm, speculative),
        resolved={},
        model={"file_sha256": "ab" * 32, "quantisation": "F32"},
        draft={"sha256": "cd" * 32} if speculative else None,
        versions={"xllamacpp": "1"},
        speculation="proven" if speculative and lost is None else "not asked",
        ended_at_unix_s=UNIX_S + 9,
        **ends,
    )
    writer = LaunchWriter.create(folder, launch)
    writer.seal(now_unix_s=UNIX_S + 10)
    return launch_id


def _run(
    runs: Path,
    cell: Cell,
    launch_id: str,
    requests: Sequence[Request],
    manifest: Mapping[str, Any],
    run: Mapping[str, Any],
    checks: Mapping[str, Any] | None,
    speculative: Iterable[str],
) -> Path:
    speculates = cell.arm in set(speculative)
    counted = [one for one in requests if one.outcome == "completed"]
    timings = [one.server_fields.get("timings", {}) for one in counted]
    drafted, accepted = (sum(one.get(name, 0) for one in timings) for name in ("draft_n", "draft_n_accepted"))
    began = {"Process-Start-Time-Unix": str(1000 + cell.index)}
    grown = {
        "prompt": sum(one.n_prompt_tokens or 0 for one in counted),
        "generated": sum(one.n_completion_tokens or 0 for one in counted),
        "drafted": drafted,
        "accepted": accepted,
        "steps": -(-drafted // 4),
    }
    scrapes = (
        llamacpp_scrape("before", -1.0, headers=began),
        llamacpp_scrape("after", 5.0 * len(requests) + 60, headers=began, **grown),
    )
    fields: dict[str, Any] = {
        "scrapes": scrapes,
        "arm": _arm(cell.arm, speculates),
        "launch_dir": f"launches/{launch_id}",
        "launch_id": launch_id,
        "server": {"engine": "llama.cpp", "version": "1", "url": "http://127.0.0.1:1", "speculative": speculates},
        "checks": checks,
    }
    return make_run(runs, requests, run_id=f"run-{cell.index:03d}", **(fields | dict(run) | dict(manifest)))


def digest(text: str = TEXT) -> str:
    """The SHA-256 that goes with a text."""
    return hashlib.sha256(text.encode()).hexdigest()
