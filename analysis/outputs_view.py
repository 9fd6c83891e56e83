"""Judged and compared answers as text. Reads what ``analysis.outputs`` made."""

from collections.abc import Sequence
from itertools import zip_longest

from analysis.outputs import Answer, DomainOutputs, Pair
from analysis.tables import Notes, table

MARKS = {True: "valid", False: "invalid", None: "not judged"}


def judged(answers: Sequence[Answer], domains: Sequence[DomainOutputs]) -> list[str]:
    """Each answer with its judgement, then how many of how many were judged."""
    notes = Notes()
    rows = [
        [
            _label(answer.prompt_id, answer.level, answer.repeat),
            answer.finish_reason or notes.dash(answer.why),
            notes.dash("the server sent no count")
            if answer.n_completion_tokens is None
            else f"{answer.n_completion_tokens}",
            str(answer.n_chars),
            answer.check or notes.dash("the prompt carries no check"),
            MARKS[answer.ok] + notes.mark(answer.why),
        ]
        for answer in answers
    ]
    shown = table(["prompt", "finish", "tokens", "chars", "check", "judgement"], rows, left=(0, 1, 4, 5))
    return [*shown, "", *_domains(domains), "", *notes.lines()]


def compared(pairs: Sequence[Pair], tokens: Sequence[tuple[int, int] | None] = ()) -> list[str]:
    """Each pair with where it parts, then how many of how many are identical.

    ``tokens`` are the first tokens that differ (first, last; from 1), one for each pair where they are known.
    """
    notes = Notes()
    rows = []
    for pair, token in zip_longest(pairs, tokens):
        if pair.equal is None:
            verdict = f"not compared{notes.mark(pair.why)}"
        else:
            verdict = "identical" if pair.equal else f"{pair.part} differs at character {pair.first_divergence_char}"
            if token is not None:
                verdict += f", token {token[0]}" if token[0] == token[1] else f", tokens {token[0]}-{token[1]}"
        sides = (pair.n_chars, pair.n_completion_tokens, pair.finish_reason)
        cells = [
            " / ".join(notes.dash(pair.why) if value is None else str(value) for value in values) for values in sides
        ]
        rows.append([_label(pair.prompt_id, pair.level, pair.repeat), *cells, verdict])
    shown = table(["prompt", "chars", "tokens", "finish", "answers"], rows, left=(0, 3, 4))
    n_compared = sum(pair.equal is not None for pair in pairs)
    n_equal = sum(pair.equal is True for pair in pairs)
    said = f"{n_equal} of {n_compared} compared answers are identical; {len(pairs) - n_compared} were not compared."
    return [*shown, "", said, *notes.lines()]


def _domains(domains: Sequence[DomainOutputs]) -> list[str]:
    rows = [
        [
            one.domain,
            f"{one.n_judged} of {one.n_answers}",
            f"{one.n_valid} of {one.n_judged}",
            str(one.n_cut),
            str(one.n_failed),
            str(one.n_not_judged),
        ]
        for one in domains
    ]
    return table(["domain", "judged", "valid", "cut by max_tokens", "failed", "no judgement"], rows)


def _label(prompt_id: str, level: str | None, repeat: int) -> str:
    return prompt_id + (f" @{level}" if level is not None else "") + (f" repeat {repeat}" if repeat else "")
