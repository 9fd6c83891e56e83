"""Decision and forest plot of a comparison, and what limits it: drift, warm-up, what was left out.

Reads the object of ``compare --json``; nothing is computed here.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analysis.report_decision import Decision, shortened, shown_domain
from analysis.report_html import Child, Markup, details, join, prose, slug, table, tag

Fields = Mapping[str, Any]
MARKS = {"on": "\u25b2", "off": "\u25bc", "no difference": "=", "not resolved": "?", "no decision": "\u2013"}
CONTROL = "control"


def decisions(found: Sequence[Decision], compared: Fields) -> Markup:
    """The decision of each arm in a sentence, then what each word rests on."""
    refused = compared.get("refused")
    if refused:
        return tag("p", f"No decision: the comparison was refused. {refused}", class_="warn")
    if not found:
        planned = ", ".join(compared.get("planned") or ())
        return tag(
            "p", f"No decision: nothing was measured{f' (planned: {planned})' if planned else ''}.", class_="warn"
        )
    return join([_decision(one) for one in found])


def _decision(one: Decision) -> Markup:
    rows = [
        tag(
            "li",
            tag(
                "span",
                f"{MARKS[part.word]} {part.word}",
                class_=f"word {part.word}" if part.word in ("on", "off") else "word",
            ),
            tag("a", f" {shown_domain(part.domain)}", href=f"#{slug('pairs', one.arm, part.domain)}"),
            f": {part.rests_on}",
        )
        for part in one.domains
    ]
    return tag(
        "div",
        tag("p", tag("b", one.arm), ": ", one.sentence, ".", class_="lead"),
        tag("ul", rows, class_="decision") if rows else None,
        tag("ul", [tag("li", prose(said)) for said in one.limits], class_="note") if one.limits else None,
        class_="arm",
    )


def forest(compared: Fields) -> list[dict[str, Any]]:
    """The rows of the forest plot: the control, then each arm with its domains; arms without a ratio too, and why."""
    found: list[dict[str, Any]] = []
    for name, entry, _ in entries(compared):
        found.append(_forest_row(name, None, entry))
        if entry.get("ratio") is not None:
            found += [_forest_row(name, domain, group) for domain, group in (entry.get("by_domain") or {}).items()]
    return found


def _forest_row(arm: str, domain: str | None, entry: Fields) -> dict[str, Any]:
    failed = entry.get("not_measured")
    why = f"not measured: {failed.get('stage')}, {failed.get('symptom')}" if failed else why_of(entry, "ratio")
    return {
        "arm": arm,
        "domain": domain,
        "ratio": entry.get("ratio"),
        "interval": entry.get("interval"),
        "prompts_only": entry.get("prompt_sampling_interval") if not entry.get("interval") else None,
        "mde": entry.get("mde_crossed"),
        "verdict": entry.get("verdict") or "no verdict",
        "n_launches": entry.get("n_launches"),
        "why": shortened(str(why if entry.get("ratio") is None else why_of(entry, "interval") or "")),
        "href": slug("pairs", arm, domain or "all"),
    }


def entries(compared: Fields) -> Iterator[tuple[str, Fields, str]]:
    """Control and arms: shown name, entry, place in the command's JSON."""
    control = compared.get("control")
    if isinstance(control, Mapping):
        yield CONTROL, control, "compare.control"
    for place, arm in enumerate(compared.get("arms") or ()):
        yield str(arm.get("arm")), arm, f"compare.arms.{place}"


def why_of(entry: Fields, name: str) -> str | None:
    whys = entry.get("why")
    said = whys.get(name) if isinstance(whys, Mapping) else None
    return str(said) if said is not None else (str(entry["because"]) if entry.get("because") else None)


def order(compared: Fields) -> Markup | None:
    """Drift over the order of requests, and whether warm-up sufficed."""
    rows: list[list[Child]] = []
    for name, entry, _ in entries(compared):
        order = entry.get("order")
        if not isinstance(order, Mapping) or entry.get("ratio") is None:
            continue
        for what in ("baseline", "arm", "ratio"):
            found = order.get(what) or {}
            slope, interval = found.get("per_request"), found.get("interval")
            said = "-" if slope is None else f"{slope:+.4%}"
            span = f"{interval[0]:+.4%} to {interval[1]:+.4%}" if interval else (found.get("why") or "-")
            rows.append([name, what, said, span, "yes" if found.get("seen") else "no"])
        for side, found in (order.get("warm_up") or {}).items():
            ratio = found.get("first_ratio")
            said = found.get("why") or {True: "sufficed", False: "did not suffice", None: "-"}[found.get("sufficed")]
            rows.append([name, f"first pass / later, {side}", "-" if ratio is None else f"{ratio:.4f}", said, "-"])
    if not rows:
        return None
    titles = ["arm", "of", "a request later", "interval, or why none", "drift seen"]
    return details("Order drift and warm-up", table(titles, rows, left=(0, 1, 3, 4)))


def left_out(compared: Fields) -> Markup | None:
    rows: list[list[Child]] = []
    for name, entry, _ in entries(compared):
        rows += [[name, f"run {one.get('run_id')}", str(one.get("why"))] for one in entry.get("excluded") or ()]
        rows += [
            [name, f"launch {one.get('pair')}: {one.get('state')}", f"{one.get('stage')}: {one.get('symptom')}"]
            for one in entry.get("not_run") or ()
        ]
        coverage = entry.get("coverage") or {}
        for what in ("prompt", "launch"):
            left_out = coverage.get({"prompt": "left_out_prompts", "launch": "left_out_launches"}[what]) or {}
            rows += [[name, f"{what} {which}", str(why)] for which, why in left_out.items()]
    if not rows:
        return None
    return details(f"Left out of the ratio ({len(rows)})", table(["arm", "what", "why"], rows, left=range(3)))
