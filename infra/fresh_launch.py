"""Is the engine a new process that has answered nothing but its launch's own question? Then a restart made it cold.

Where nothing but a restart clears what an engine keeps (llama.cpp's n-gram tables, vLLM's suffix tree), a fresh launch
is the reset, and this is its proof: the run cites a launch that started the process, and the engine's own counter of
generated tokens stands at what the launch's first answer took.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evidence.records import Launch
from infra.engines.adapter import adapter_for, read_snapshot
from infra.engines.labels import chosen
from infra.engines.meaning import Counted
from infra.fetch import Fetched
from infra.wire.exposition import ExpositionError


@dataclass(frozen=True, kw_only=True, slots=True)
class Fresh:
    """``why`` says what shows it, or what speaks against it."""

    proven: bool
    why: str
    launch_id: str | None = None


def fresh_launch(launch: Launch | None, n_generated: float | None) -> Fresh:
    """Judge a launch as cited. ``n_generated``: tokens the engine says it has generated so far; None: it says nothing.

    Pure. A server that someone else runs is fresh only where the launch ran its restart command.
    """
    if launch is None:
        return Fresh(proven=False, why="no launch on record serves it: launch it anew with `python -m infra launch`")
    restarted_by = launch.command  # of a server someone else runs: the restart command, () where none was run
    if isinstance(launch.arm, Mapping) and launch.arm.get("kind") == "external" and not restarted_by:
        why = "someone else runs it, and it was not restarted: give its arm a restart command"
        return Fresh(proven=False, why=why, launch_id=launch.launch_id)
    proof = launch.speculation_proof if isinstance(launch.speculation_proof, Mapping) else {}
    own = proof.get("first_answer_tokens")
    if n_generated is None or not isinstance(own, int):
        why = "nothing tells how many tokens it has generated since its start: switch on its metrics"
        return Fresh(proven=False, why=why, launch_id=launch.launch_id)
    if n_generated != own:
        why = f"it has generated {n_generated:g} tokens since its start, and its launch asked for {own}: launch it anew"
        return Fresh(proven=False, why=why, launch_id=launch.launch_id)
    why = f"{launch.launch_id} started it, and it has generated nothing but that launch's own {own} tokens"
    return Fresh(proven=True, why=why, launch_id=launch.launch_id)


def generated_so_far(adapter: str | None, version: str | None, metrics: Fetched | None) -> float | None:
    """The engine's own count of generated tokens since its start, from its exposition; None where it has none."""
    reader = adapter_for(adapter, version)
    if reader is None or metrics is None or metrics.body is None or not isinstance(reader.meaning.generated, Counted):
        return None
    where = reader.meaning.generated
    try:
        exposition = read_snapshot(reader, metrics.body, metrics.headers).exposition
    except ExpositionError:
        return None
    found: list[float] = []
    for name in where.names:
        samples = chosen(exposition.find(name, dict(where.labels)), reader.rule)
        found += [sample.value for sample in samples]
    return sum(found) if found else None


def drafting_mode(said: str | None, launch: Launch | None) -> str | None:
    """The kind of speculation in the engine's own word: as it says, else as its launch resolved or asked for it."""
    if said is not None or launch is None:
        return said
    keys = ("speculative_config.method", "asked.speculative-config.method", "asked.speculative_config.method")
    settings: Mapping[str, Any] = launch.resolved
    return next((settings[key] for key in keys if isinstance(settings.get(key), str)), None)
