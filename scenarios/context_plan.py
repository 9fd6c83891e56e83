"""Levels of prompt length: each request's prompt has exactly so many tokens, as the server counts them.

Under ``cache.policy = "cold"`` every request starts with a salt, so that no two share a beginning; with a shared text
the salt stands behind it. The filler differs by level and prompt in any case. The shared text differs by level, so
that the first request of a level meets it for the first time.
"""

from typing import Any

from scenarios.drawn import Drawn, Levels, Wanted, labelled, passed, with_repeats
from scenarios.lengths import Lengths, refuse_beyond
from scenarios.mixing import Dealer
from scenarios.planned import PlanLevel
from scenarios.planning import salt_of
from scenarios.strict_toml import Problem


def context_levels(wanted: Wanted) -> Levels:
    """The levels and their lengthened requests. Raises ScenarioError where a length does not fit or cannot be met."""
    scenario, asked = wanted.scenario, wanted.scenario.context
    assert asked is not None
    longest = max(scenario.request.max_tokens[domain] for domain in scenario.mix.domains)
    keys = [f"context.target_tokens[{index}]" for index in range(len(asked.target_tokens))]
    for key, target in zip(keys, asked.target_tokens, strict=True):
        at = Problem(key=key, value=target, message="")
        refuse_beyond(wanted.limit_tokens, target, longest, source=wanted.source, at=at)
    lengths = None
    if not wanted.outline:
        count = wanted.counter("context.target_tokens", list(asked.target_tokens))
        lengths = Lengths(scenario, count, wanted.source)
    dealer = Dealer(scenario, wanted.taken, apart=wanted.cold)
    labels = labelled(f"tokens={target}" for target in asked.target_tokens)
    levels = [
        PlanLevel(index=index, label=label, users=1, target_tokens=target)
        for index, (label, target) in enumerate(zip(labels, asked.target_tokens, strict=True))
    ]
    plain: list[Drawn] = []
    for level in levels:
        plain += passed(list(dealer.level(asked.requests)), level.label, wanted.passes)
    by_label = {level.label: (level, key) for level, key in zip(levels, keys, strict=True)}
    drawn: list[Drawn] = []
    made: dict[str, dict[str, Any]] = {}
    for one, repeat in with_repeats(plain):
        level, key = by_label[one.level]
        assert level.target_tokens is not None
        seed = f"{scenario.seed}:context:{one.level}:{one.prompt.id}" + (f":{repeat}" if wanted.cold else "")
        salt = salt_of(scenario, one.prompt.id, f"{one.level}:{repeat}") if wanted.cold else None
        if lengths is None:
            made[seed] = {}
        elif seed not in made:
            at = Problem(key="context.shared_prefix_tokens", value=asked.shared_prefix_tokens, message="")
            shared = lengths.shared(asked.shared_prefix_tokens, seed=f"{scenario.seed}:shared:{one.level}", at=at)
            within = bool(shared) and salt is not None
            text = lengths.prompt(
                one.prompt,
                level.target_tokens,
                seed=seed,
                salt=None if within else salt,
                head=shared + (f"[{salt}]\n" if within else ""),
                at=Problem(key=key, value=level.target_tokens, message=f"prompt {one.prompt.id}: "),
            )
            made[seed] = {"text": text, "salt": salt, "salt_within": within}
        fields = {
            **made[seed],
            "target_prompt_tokens": level.target_tokens,
            "shared_prefix_tokens": asked.shared_prefix_tokens,
        }
        drawn.append(Drawn(prompt=one.prompt, level=one.level, pass_index=one.pass_index, fields=fields))
    return levels, drawn
