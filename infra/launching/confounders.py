"""What makes a measurement another one without a word: acceptance made up, a draft that is never used, flags not kept.

Judged on what the server reports and on the environment it was started in. Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from infra.launching.resolved import comparable, settings_of

Json = Any

# Simulated acceptance, by the names of the variables; -1, 0 and empty mean off.
_SIMULATED = ("SGLANG_SIMULATE_ACC", "VLLM_SIMULATE_ACC")
_OFF = ("", "0", "-1", "-1.0", "0.0", "false")


def synthetic_switches(resolved: Mapping[str, Json], environment: Mapping[str, str]) -> tuple[str, ...]:
    """What makes acceptance up, or accepts what the target would not, each as ``name = value``; a real run has none."""
    of_settings = [
        f"{key} = {value}"
        for key, value in settings_of(resolved).items()
        if _makes_up(key.rpartition(".")[2].replace("-", "_"), value)
    ]
    return tuple(dict.fromkeys([*_of_environment(environment), *of_settings]))


def _of_environment(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        if name.startswith(_SIMULATED) and value.strip().lower() not in _OFF:
            yield f"{name} = {value}"


def _makes_up(last: str, value: Json) -> bool:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if last == "rejection_sample_method":
        return value in ("synthetic", "fly")
    if last in ("synth_len", "spec_synth_len"):
        return number > 0 if number is not None else bool(value)
    if last in ("synth_rates", "spec_synth_rates", "synthetic_acceptance_rates"):
        return bool(value)
    if last in ("speculative_accept_threshold_single", "speculative_accept_threshold_acc"):
        return number is not None and number < 1
    return False


def draft_without_speculation(resolved: Mapping[str, Json]) -> str | None:
    """A draft that was loaded while speculation is off, by what the server reports; None where nothing shows it."""
    settings = settings_of(resolved)
    if settings.get("speculative_draft_model_path") and settings.get("speculative_algorithm", "") is None:
        draft = settings["speculative_draft_model_path"]
        return f"speculative_draft_model_path = {draft!r} and speculative_algorithm = None"
    draft = next(
        (settings[f"asked.{name}"] for name in ("model-draft", "spec-draft-model") if f"asked.{name}" in settings), None
    )
    if draft and settings.get("slots.speculative") is False:
        return f"a draft is given ({str(draft).rpartition('/')[2]}) and /slots says speculative: false"
    if settings.get("speculative.draft.mparams.path") and settings.get("speculative.types") in (["none"], []):
        return "speculative.draft.mparams.path is given and speculative.types is none"
    return None


def asked_not_kept(asked: Mapping[str, Json], resolved: Mapping[str, Json]) -> tuple[tuple[str, Json, Json], ...]:
    """Flags whose value the server reports otherwise: (flag, asked, reported). What it does not report is left out."""
    found = []
    for key, value in asked.items():
        reported_as = key.replace("-", "_")
        if reported_as in resolved and not isinstance(value, Mapping | tuple | list):
            reported = resolved[reported_as]
            if comparable(reported_as, reported) != comparable(reported_as, value) and value != "auto":
                found.append((key, value, reported))
    return tuple(found)
