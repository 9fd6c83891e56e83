"""Judges an answer by the task check its prompt carries: is it what was asked for, in the simplest sense?

Only whole answers are judged: one cut by the token limit, or ended by an error, says nothing about what the model would
have written. A judgement is no score of quality; it serves to compare arms, whose answers should be right equally
often.

json_schema
    The whole answer parses as JSON (RFC 8259: no NaN) and meets the schema. One code fence around it is allowed, and
    said; any other text is not.
code
    The first fenced block that defines the function (without fences, the whole text) parses, the function stands at top
    level with these parameters first (more are allowed when they have defaults), and each case, run in a limited
    process, gives the result as JSON (numbers within one part in 10^9).
prose
    Length: runs of non-space that hold a letter or digit, within the check's bounds, which contain the tolerance.
    Language: of the stop words below, those of the wanted language cover more of the words than any other language's,
    and at least 12 %; below ten words it is not looked at. Points: one alternative of each list occurs as whole words,
    letter case aside; a ``*`` at its end lets the last word go on.
"""

import json
import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from referencing import Registry
from referencing.exceptions import Unresolvable

from analysis.answer_code import AnswerError, code_for
from analysis.limited_run import DEFAULT_LIMITS, Limits, NotRun, run_calls

Json = Any  # a value that came as JSON and is kept as it came

MIN_WORDS_FOR_LANGUAGE = 10
MIN_STOP_WORD_RATIO = 0.12

_WHOLE = ("stop", "eos", "eos_token", "stop_sequence")  # finish reasons of an answer that came to its end
_FENCED = re.compile(r"\A(`{3,}|~{3,})[ \t]*(?:json|JSON)?[ \t]*\r?\n(.*?)\r?\n?\1[ \t]*\Z", re.DOTALL)
_STOP_WORDS = {
    "en": "the of and to in is that it for with as was on are be this have from or by not but at you your they which i",
    "de": "der die das und ist nicht ein eine zu den mit von auf für im dem des sich wie es wird durch auch er bei ich",
    "es": "el la los las de que y en un una es por con para del se no al lo como más pero su mi te tu muy hay está",
    "fr": "le la les des et est un une que qui dans pour pas au du sur ce il vous nous avec ne son sa ton votre je à",
}
_STOP_SETS = {language: frozenset(words.split()) for language, words in _STOP_WORDS.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """``state`` and, in words, ``why``: what was met, what failed first, or why nothing was judged."""

    state: Literal["valid", "invalid", "not judged"]
    why: str


def judge(
    check: Mapping[str, Json] | None, text: str, *, finish_reason: str | None, limits: Limits = DEFAULT_LIMITS
) -> Judgement:
    """Judges ``text`` by ``check``, as it stands in the plan, of a request that ended with ``finish_reason``.

    None as check, an unknown kind, and an answer that did not come to its end are "not judged". Never raises for what
    an answer holds; a check that lacks a field of its kind raises KeyError.
    """
    if check is None:
        return Judgement(state="not judged", why="the prompt carries no check")
    if finish_reason == "length":
        return Judgement(state="not judged", why="the answer was cut by max_tokens")
    if finish_reason not in _WHOLE:
        return Judgement(
            state="not judged", why=f"the answer did not come to its end (finish reason {finish_reason!r})"
        )
    kind = check["kind"]
    if kind == "json_schema":
        return _judge_json(check["schema"], text)
    if kind == "code":
        return _judge_code(check, text, limits)
    if kind == "prose":
        return _judge_prose(check, text)
    return Judgement(state="not judged", why=f"the check's kind {kind!r} is unknown here")


def _judge_json(schema: Json, text: str) -> Judgement:
    stripped = text.strip()
    fenced = _FENCED.match(stripped)
    body = fenced.group(2) if fenced else stripped
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        return _invalid(f"no JSON: {error}" if body else "the answer is empty")
    # An empty registry: a reference to elsewhere is an error, not a download.
    validator = Draft202012Validator(schema, registry=Registry())
    try:
        failure = best_match(validator.iter_errors(value))
    except RecursionError:
        return _invalid("JSON nested too deeply to be checked")
    except ArithmeticError as error:  # multipleOf of a number beyond what a float holds
        return _invalid(f"a number that cannot be checked: {error}")
    except Unresolvable as unresolvable:
        return Judgement(state="not judged", why=f"the schema refers to {unresolvable.ref!r}, which is not in it")
    if failure is not None:
        return _invalid(f"does not meet the schema at {failure.json_path}: {failure.message[:200]}")
    return Judgement(state="valid", why="meets the schema" + (", within a code fence" if fenced else ""))


def _judge_code(check: Mapping[str, Json], text: str, limits: Limits) -> Judgement:
    try:
        code = code_for(text, check["function"], check["parameters"])
    except AnswerError as error:
        return _invalid(str(error))
    cases = check["cases"]
    if not cases:
        return Judgement(state="valid", why="parses and defines the function; the task has no cases to run")
    ran = run_calls(code, check["function"], [case["args"] for case in cases], limits)
    if isinstance(ran, NotRun):
        return Judgement(state="not judged", why=f"the cases were not run: {ran.why}")
    without = f" (run without: {', '.join(ran.lacking)})" if ran.lacking else ""
    for number, (case, call) in enumerate(zip(cases, ran.calls, strict=False), 1):
        if call.error is not None:
            return _invalid(f"case {number} of {len(cases)}: {call.error}{without}")
        if not same_json(call.value, case["result"]):
            got, wanted = _short(call.value), _short(case["result"])
            return _invalid(f"case {number} of {len(cases)}: gave {got}, not {wanted}{without}")
    if ran.stopped is not None:
        return _invalid(f"case {len(ran.calls) + 1} of {len(cases)}: {ran.stopped}{without}")
    return Judgement(state="valid", why=f"{len(cases)} of {len(cases)} cases give the right result{without}")


def _judge_prose(check: Mapping[str, Json], text: str) -> Judgement:
    n_words = sum(1 for item in text.split() if any(character.isalnum() for character in item))
    least, most = check.get("min_words"), check.get("max_words")
    if n_words == 0:
        return _invalid("the answer has no words")
    if (least is not None and n_words < least) or (most is not None and n_words > most):
        return _invalid(f"{n_words} words, where {least or 1} to {most or 'any number'} are accepted")
    folded = _folded(text)
    words = re.findall(r"[^\W\d_]+", folded)
    if len(words) >= MIN_WORDS_FOR_LANGUAGE:
        ratios = {name: sum(word in stops for word in words) / len(words) for name, stops in _STOP_SETS.items()}
        likeliest = max(ratios, key=lambda name: ratios[name])
        wanted = ratios[check["language"]]
        if likeliest != check["language"] or wanted < MIN_STOP_WORD_RATIO:
            return _invalid(f"not in the language {check['language']!r} by its stop words: {wanted:.0%} of the words")
    for alternatives in check.get("must_name", ()):
        if not any(_names(folded, alternative) for alternative in alternatives):
            return _invalid(f"does not name {' or '.join(repr(alternative) for alternative in alternatives)}")
    return Judgement(state="valid", why=f"{n_words} words, language {check['language']!r} and points as asked")


def same_json(one: Json, other: Json) -> bool:
    """Equal as JSON: true is not 1, 2 equals 2.0, numbers within one part in 10^9, objects in any order."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        if (isinstance(one, int) and isinstance(other, int)) or max(abs(one), abs(other)) > 1e300:
            return one == other
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(one, list) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same_json, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_json(one[key], other[key]) for key in one)
    return type(one) is type(other) and bool(one == other)


def _names(folded: str, alternative: str) -> bool:
    wanted = _folded(alternative.removesuffix("*"))
    end = "" if alternative.endswith("*") else r"(?!\w)"
    return re.search(rf"(?<!\w){re.escape(wanted)}{end}", folded) is not None


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).casefold().replace("’", "'").split())


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _invalid(why: str) -> Judgement:
    return Judgement(state="invalid", why=why)


def _short(value: Json) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "a deeply nested value"
    return text if len(text) <= 100 else f"{text[:97]}..."
