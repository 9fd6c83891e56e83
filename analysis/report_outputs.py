"""The answers in a report: judged by their prompts' checks, and laid beside the baseline's, with where they part.

Equality is that of ``analysis.outputs``; a difference shows the characters around its first place here and now, and the
whole of both texts word by word where the page's script runs.
"""

from analysis import identity
from analysis.outputs import Pair, by_domain, compare
from analysis.report_gather import Entry, RunView
from analysis.report_html import Child, Markup, details, join, slug, table, tag
from analysis.report_study import Paired, StudyView

BEFORE, AFTER = 60, 90  # characters of context around a first divergence
MOST_SHOWN = 150  # differences with their context in the page; the table above counts all


def judged(run: RunView) -> Markup:
    """How many of a run's answers were judged and valid, and which were not."""
    answers = [entry.answer for entry in run.measured if entry.answer is not None]
    rows: list[list[Child]] = [
        [one.domain, f"{one.n_judged} of {one.n_answers}", f"{one.n_valid} of {one.n_judged}", one.n_cut, one.n_failed,
         one.n_not_judged]
        for one in by_domain(answers)
    ]  # fmt: skip
    titles = ["domain", "judged", "valid", "cut by limit", "failed", "no judgement"]
    wrong = [entry for entry in run.measured if entry.answer is not None and entry.answer.ok is False]
    found: list[Child] = [table(titles, rows, caption=f"Answers judged, {run.name}")]
    if wrong:
        lines = [
            [_link(entry), entry.request.domain, entry.answer.why if entry.answer else "", _head(entry)]
            for entry in wrong[:MOST_SHOWN]
        ]
        shown = table(["request", "domain", "what is wrong", "begins with"], lines, left=range(4))
        found.append(details(f"Invalid answers ({len(wrong)})", shown))
    return join(found)


def repeats(run: RunView) -> Markup | None:
    """Answers of one run to the same prompt asked again; None where no prompt was."""
    asked: dict[str, list[Entry]] = {}
    for entry in run.measured:
        if entry.request.outcome == "completed":
            asked.setdefault(entry.request.prompt_id, []).append(entry)
    again = {prompt: own for prompt, own in asked.items() if len(own) > 1}
    if not again:
        return None
    differing = [own for own in again.values() if len({entry.request.output_sha256 for entry in own}) > 1]
    said = f"{len(again)} prompts were asked more than once; {len(differing)} of them got different answers."
    shown = [
        _difference(own[0], next(e for e in own if e.request.output_sha256 != own[0].request.output_sha256))
        for own in differing[:MOST_SHOWN]
    ]
    return join([tag("p", said), shown])


def compared(view: StudyView, arm: str | None) -> Markup:
    """One arm's answers beside the baseline's, prompt by prompt over its paired launches; the control's for None."""
    launches = [(paired, _pairs(paired)) for paired in view.paired(arm)]
    pairs = [pair for _, found in launches for pair, _, _ in found]
    title = "control" if arm is None else arm
    if not pairs:
        return tag("p", f"{title}: no paired launch, so no answer to compare.")
    n_compared, n_equal = sum(p.equal is not None for p in pairs), sum(p.equal is True for p in pairs)
    rows = []
    for prompt in dict.fromkeys(pair.prompt_id for pair in pairs):
        own = [pair for pair in pairs if pair.prompt_id == prompt]
        known = [pair for pair in own if pair.equal is not None]
        places = [pair.first_divergence_char for pair in own if pair.first_divergence_char is not None]
        rows.append(
            [
                prompt,
                own[0].domain,
                f"{sum(pair.equal is True for pair in own)} of {len(known)}",
                min(places) if places else "-",
                sum(pair.n_completion_tokens[0] != pair.n_completion_tokens[1] for pair in known),
                sum(pair.finish_reason[0] != pair.finish_reason[1] for pair in known),
                "; ".join(dict.fromkeys(pair.why for pair in own if pair.equal is None)) or "-",
            ]
        )
    titles = ["prompt", "domain", "equal", "first difference at character", "lengths differ", "finish reasons differ",
              "not compared"]  # fmt: skip
    shown = [
        _difference(base, other)
        for _, found in launches
        for pair, base, other in found
        if pair.equal is False and base is not None and other is not None
    ]
    said = f"{title}: {n_equal} of {n_compared} compared answers equal the baseline's; {len(pairs) - n_compared} were"
    cut = "" if len(shown) <= MOST_SHOWN else f", the first {MOST_SHOWN} shown"
    return tag(
        "div",
        tag("h3", f"{title} beside the baseline"),
        tag("p", f"{said} not compared."),
        details("By prompt", table(titles, rows, left=(0, 1, 6), caption=f"Answers by prompt, {title}")),
        details(f"Differences ({len(shown)}{cut})", shown[:MOST_SHOWN]) if shown else None,
        id=slug("outputs", title),
    )


def _pairs(paired: Paired) -> list[tuple[Pair, Entry | None, Entry | None]]:
    ours, theirs = (
        {(e.request.prompt_id, e.request.level, e.request.repeat): e for e in run.measured}
        for run in (paired.base, paired.other)
    )
    found = compare(
        [entry.request for entry in paired.base.measured],
        paired.base.loaded.plan,
        [entry.request for entry in paired.other.measured],
        paired.other.loaded.plan,
        (
            identity.request_extra(paired.base.loaded.manifest),
            identity.request_extra(paired.other.loaded.manifest),
        ),
    )
    keys = [(pair.prompt_id, pair.level, pair.repeat) for pair in found]
    return [(pair, ours.get(key), theirs.get(key)) for pair, key in zip(found, keys, strict=True)]


def _difference(base: Entry, other: Entry) -> Markup:
    """Where two answers part, with a button that shows both whole."""
    left, right = base.request.output_text, other.request.output_text
    where = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    start = max(0, where - BEFORE)
    lead = ("\u2026" if start else "") + left[start:where]
    return tag(
        "div",
        tag("p", _link(base), " ", base.request.prompt_id, " beside ", _link(other), f", from character {where}"),
        tag("pre", lead, tag("del", _after(left, where)), class_="model", dir="auto"),
        tag("pre", lead, tag("ins", _after(right, where)), class_="model", dir="auto"),
        tag("button", "Both whole", type="button", data_diff=f"{base.number},{other.number}", class_="js"),
        class_="diff",
    )


def _after(said: str, where: int) -> str:
    return said[where : where + AFTER] + ("\u2026" if len(said) > where + AFTER else "") or "\u2205 ends here"


def _head(entry: Entry) -> Markup:
    said = entry.request.output_text
    return tag("span", said[:AFTER] + ("\u2026" if len(said) > AFTER else ""), class_="model", dir="auto")


def _link(entry: Entry) -> Markup:
    return tag("a", entry.request.plan_id, href=f"#{entry.anchor}")
