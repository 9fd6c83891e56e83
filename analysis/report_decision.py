"""The decision in plain words, by domain, from the object of ``compare --json``, and what it rests on.

    faster          on for JSON           the interval lies above 1
    slower          off for prose         it lies below 1
    no difference   no difference for code
    not resolved    not resolved for code

Where the control, the baseline against itself, differs in a domain, an arm's interval must lie beyond the control's own
farthest end; else the word is "not resolved", whatever the arm's verdict is.

No decision stands on one paired launch, on a planned study, or on an arm that did not run. Speed alone never decides
where answers changed: an arm whose answers differ from the baseline's more than the baseline's from themselves
is "on" only for who accepts the changed answers, and that is said in the same sentence.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from analysis.control import doubt

Word = Literal["on", "off", "no difference", "not resolved", "no decision"]
WORDS: Mapping[str, Word] = {
    "faster": "on",
    "slower": "off",
    "no difference": "no difference",
    "not resolved": "not resolved",
}
FEWEST_LAUNCHES = 2
LONGEST = 280  # characters of a reason within a sentence
CHANGED = ("differs more than the control", "differs, control unknown")
Fields = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class DomainDecision:
    """One domain of one arm; ``rests_on`` is the number behind the word, or the reason there is none."""

    domain: str
    word: Word
    rests_on: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """An arm's decision. ``sentence`` says all of it; ``limits`` are what a reader has to accept with it."""

    arm: str
    sentence: str
    domains: tuple[DomainDecision, ...]
    limits: tuple[str, ...]


def decide(compared: Fields, *, planned: bool = False) -> tuple[Decision, ...]:
    """One decision for each arm of a comparison; none where the comparison as a whole was refused."""
    return tuple(_arm(arm, planned, compared) for arm in compared.get("arms", ()))


def control_doubt(compared: Fields) -> str | None:
    """What the control says against every decision: the baseline differs from itself. None where it doesn't."""
    control = compared.get("control")
    if not isinstance(control, Mapping):
        return None
    whole = doubt(control)
    if whole is not None and not control.get("interval"):
        return f"{whole}."
    groups = {"all prompts": control, **(control.get("by_domain") or {})}
    differing = [
        f"{shown_domain(name)} {ratio_text(group['interval'][0])} to {ratio_text(group['interval'][1])}"
        for name, group in groups.items()
        if group.get("interval") and not group["interval"][0] <= 1 <= group["interval"][1]
    ]
    if not differing:
        return None
    lead = "" if whole is None else f"{whole}. "
    return (
        f"{lead}The control does not agree with itself: launches of the one baseline differ ({'; '.join(differing)})."
        " Something beside the arm moves the rate, and effects of that size show nothing."
    )


def ratio_text(value: float) -> str:
    """A ratio with three digits, or with as many as tell it from 1."""
    digits = next((n for n in range(3, 9) if value == 1 or float(f"{value:.{n}f}") != 1), 9)
    return f"{value:.{digits}f}"


def shown_domain(domain: str) -> str:
    """A domain's name within a sentence."""
    return {"json": "JSON"}.get(domain, domain)


def shortened(said: str) -> str:
    """A long reason as far as a sentence bears it; the tables below hold the whole."""
    return said if len(said) <= LONGEST else said[:LONGEST].rstrip() + "\u2026"


def _arm(arm: Fields, planned: bool, compared: Fields) -> Decision:
    name = str(arm.get("arm"))
    failed = arm.get("not_measured")
    if failed:
        said = f"{failed.get('stage') or 'stage unknown'}: {failed.get('symptom') or 'no symptom on record'}"
        return Decision(arm=name, sentence=f"no decision: not measured ({shortened(said)})", domains=(), limits=())
    if arm.get("refused"):
        return Decision(arm=name, sentence=f"no decision: {shortened(str(arm['refused']))}", domains=(), limits=())
    if arm.get("ratio") is None and not planned:
        said = shortened(str(_why(arm, "ratio") or arm.get("because") or "no ratio"))
        return Decision(arm=name, sentence=f"no decision: {said}", domains=(), limits=())
    refused = _no_decision(arm, planned)
    against = tuple(one for one in [control_doubt(compared)] if one is not None)
    groups: Mapping[str, Fields] = arm.get("by_domain") or {}
    control = (compared.get("control") or {}).get("by_domain") or {}
    domains = tuple(_domain(domain, group, refused, control.get(domain) or {}) for domain, group in groups.items())
    if refused is not None:
        return Decision(arm=name, sentence=f"no decision: {refused}", domains=domains, limits=against)
    sentence = _sentence(domains) or f"{WORDS.get(str(arm.get('verdict')), 'not resolved')} for the whole mix"
    limits = against + _limits(arm, domains)
    return Decision(arm=name, sentence=sentence, domains=domains, limits=limits)


def _no_decision(arm: Fields, planned: bool) -> str | None:
    if planned:
        return "the study is planned, and its figures are estimates"
    n_launches = arm.get("n_launches") or 0
    if n_launches < FEWEST_LAUNCHES or arm.get("scope") == "prompts only":
        launches = "one paired launch" if n_launches == 1 else f"{n_launches} paired launches"
        return f"{launches}: how much launches differ from each other was not seen"
    return None


def _domain(domain: str, group: Fields, refused: str | None, control: Fields) -> DomainDecision:
    n_launches = group.get("n_launches") or 0
    short = n_launches < FEWEST_LAUNCHES or group.get("scope") == "prompts only"
    word: Word = "no decision" if refused or short else WORDS.get(str(group.get("verdict")), "not resolved")
    rests_on = _rests_on(group)
    if word in ("on", "off") and not _beyond(group, control):
        word, rests_on = "not resolved", f"{rests_on}; the baseline differs from itself as far"
    return DomainDecision(domain=domain, word=word, rests_on=rests_on)


def _beyond(group: Fields, control: Fields) -> bool:
    """Whether an interval that leaves out 1 is farther from 1 than the control's interval reaches, if that does too."""
    own, other = group.get("interval"), control.get("interval")
    if not own or not other or other[0] <= 1 <= other[1]:
        return True
    return min(abs(math.log(end)) for end in own) > max(abs(math.log(end)) for end in other)


def _rests_on(group: Fields) -> str:
    ratio, interval = group.get("ratio"), group.get("interval")
    if ratio is None:
        return str(_why(group, "ratio") or group.get("because") or "no ratio")
    parts = [f"decode rate x{ratio_text(ratio)}"]
    if interval:
        parts.append(f"interval {ratio_text(interval[0])} to {ratio_text(interval[1])}")
    else:
        parts.append(f"no interval ({_why(group, 'interval') or 'no reason on record'})")
    for name, one, many in (("n_launches", "paired launch", "paired launches"), ("n_prompts", "prompt", "prompts")):
        count = group.get(name)
        if count is not None:
            parts.append(f"{count} {one if count == 1 else many}")
    mde = group.get("mde_crossed")
    if mde is not None and group.get("verdict") in ("no difference", "not resolved"):
        parts.append(f"differences below {mde:.1%} may stay unseen")
    return ", ".join(parts)


def _why(group: Fields, name: str) -> str | None:
    whys = group.get("why")
    said = whys.get(name) if isinstance(whys, Mapping) else None
    return None if said is None else str(said)


def _sentence(domains: Sequence[DomainDecision]) -> str:
    order: tuple[Word, ...] = ("on", "off", "no difference", "not resolved", "no decision")
    parts = []
    for word in order:
        named = [shown_domain(one.domain) for one in domains if one.word == word]
        if named:
            parts.append(f"{word} for {_listed(named)}")
    return ", ".join(parts)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _limits(arm: Fields, domains: Sequence[DomainDecision]) -> tuple[str, ...]:
    found = []
    equal, compared = arm.get("outputs_equal"), arm.get("outputs_compared")
    if arm.get("outputs_class") in CHANGED:
        found.append(
            f"Its answers are not the baseline's: {equal} of {compared} are equal ({arm['outputs_class']}). "
            "A decision for speed holds only where the changed answers are accepted."
        )
    elif compared:
        found.append(f"{equal} of {compared} compared answers equal the baseline's.")
    else:
        found.append("Whether its answers equal the baseline's was not compared.")
    if arm.get("n_judged"):
        found.append(f"{arm.get('n_valid')} of {arm['n_judged']} judged answers do what their prompts ask.")
    if len(domains) > 1:
        found.append("Each domain's interval is a statement by itself; together they are wrong more often than one.")
    return tuple(found)
