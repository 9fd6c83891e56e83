"""Acceptance and the cost of a cycle as tables, for a comparison. Reads what ``analysis.arm_speculation`` made."""

from collections.abc import Sequence

from analysis.compare_tables import Fields, interval, named
from analysis.names import NARROW, short
from analysis.tables import Notes, ms, number, table, wrapped


def acceptance(arms: Sequence[Fields], notes: Notes) -> list[str]:
    rows, fits = [], []
    label = named(arms, None)
    for arm in arms:
        found = arm["acceptance"]
        reasons = found["reasons"]

        def shown(name: str, digits: int, found: Fields = found, reasons: Fields = reasons) -> str:
            value = found[name]
            return notes.dash(reasons.get(name) or found["why"]) if value is None else number(value, digits)

        fit = found["alpha"]
        alpha = notes.dash(reasons.get("alpha")) if fit is None or fit["alpha"] is None else number(fit["alpha"], 3)
        counts = [shown(name, 0) for name in ("n_drafted", "n_accepted", "n_verify_steps")]
        ratios = [shown(name, 3) for name in ("rate", "length", "tokens_per_target_step")]
        rows.append([label(arm), found["state"], *counts, *ratios, alpha])
        if fit is not None:
            fits += wrapped(f"model of one acceptance probability {fit['fit']}: {fit['why']}", lead=f"{arm['arm']}: ")
        for domain, own in found["by_domain"].items():
            if own["rate"] is not None or own["tokens_per_target_step"] is not None:
                cells = [
                    notes.dash(own["reasons"].get(name) or own["why"])
                    if own[name] is None
                    else number(own[name], digits)
                    for name, digits in (
                        *(("n_drafted", 0), ("n_accepted", 0), ("n_verify_steps", 0)),
                        *(("rate", 3), ("length", 3), ("tokens_per_target_step", 3)),
                    )
                ]
                rows.append([f"  {short(domain, 18)}", own["state"], *cells, ""])
    if not rows:
        return []
    titles = ["arm", "state", "drafted", "accepted", "steps", "rate", "length", "tok/step", "alpha"]
    return [*table(titles, rows, left=(0, 1)), *fits]


def cycle_cost(arms: Sequence[Fields], draft_cost: Fields, notes: Notes) -> list[str]:
    rows, said = [], []
    label = named(arms, None, NARROW)
    for arm in arms:
        found = arm["cycle_cost"]
        if found is None or found["cost"] is None:
            why = arm["why"].get("cycle_cost") or "not known"
            if why != "the arm does not speculate":
                rows.append([label(arm), *[notes.dash(why)] * 7])
            continue
        bounds = found["cost_interval"]
        pays = {True: "yes", False: "no", None: "open"}[found["pays"]]
        times = [ms(found[name]) for name in ("t_base_s", "t_cycle_s")]
        span = notes.dash(found["why"].get("cost_interval")) if bounds is None else interval(bounds)
        length, predicted = number(found["tokens_per_step"], 3), number(found["predicted_speedup"], 3)
        rows.append([label(arm), *times, number(found["cost"], 3), span, length, predicted, pays])
        for domain, own in found["by_domain"].items():
            predicts = f"{own['predicted_speedup']:.3f} predicted, {own['measured_speedup']:.3f} measured"
            said += wrapped(f"{own['tokens_per_step']:.3f} tokens a step, {predicts}", lead=f"{arm['arm']}, {domain}: ")
        said += wrapped(str(found["coverage"]), lead=f"{arm['arm']}: ")
    if not rows:
        return []
    titles = ["arm", "t_base_ms", "t_cycle_ms", "break-even", "95 % interval", "tok/step", "E[A]/cost", "pays"]
    legend = (
        "break-even: t_cycle / t_base, the tokens a step below which speculation loses; pays: the tokens a step lie"
        " above the whole interval (yes), below it (no), or within (open)."
    )
    for name, family in draft_cost["families"].items():
        parts = family["parts"]
        told = (
            parts["why"] or f"t_draft {ms(parts['t_draft_s'])} ms, verifying {ms(parts['verify_slope_s'])} ms a draft"
        )
        said += wrapped(f"draft lengths {family['draft_lengths']}: {told}", lead=f"{name}: ")
    if draft_cost["why"] is not None:
        said += wrapped(draft_cost["why"], lead="cost of a draft: ")
    return [*table(titles, rows), *wrapped(legend), *said]
