"""The stock of prompts is what it promises, and prompt files are loaded strictly."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from prompts.checks import Case, CodeCheck, JsonCheck, ProseCheck
from prompts.ledgers import prompt_file
from prompts.load import (
    DOMAINS,
    WARMUP,
    Prompt,
    PromptError,
    file_sha256,
    fold,
    load_file,
    load_stock,
    refuse_clashes,
    stock_path,
)

STOCK = load_stock()
MEASURED = [prompt for domain in DOMAINS for prompt in STOCK[domain]]
EVERY = [*MEASURED, *STOCK[WARMUP]]
GOOD: dict[str, Any] = {"id": "a_1", "domain": "poems", "text": "Write two lines about rain."}


def line(**changes: Any) -> bytes:
    return json.dumps({**GOOD, **changes}).encode() + b"\n"


def saved(folder: Path, data: bytes, name: str = "mine.jsonl") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def refused(folder: Path, data: bytes) -> PromptError:
    with pytest.raises(PromptError) as caught:
        load_file(saved(folder, data))
    return caught.value


# The stock


def test_the_stock_has_thirty_prompts_of_each_domain_and_enough_warm_ups() -> None:
    assert {domain: len(STOCK[domain]) for domain in DOMAINS} == {"code": 30, "prose": 30, "json": 30}
    assert len(STOCK[WARMUP]) >= 14


@pytest.mark.parametrize("domain", [*DOMAINS, WARMUP])
def test_ids_count_up_from_one_within_their_domain(domain: str) -> None:
    assert [p.id for p in STOCK[domain]] == [f"{domain}_{n:02}" for n in range(1, len(STOCK[domain]) + 1)]
    assert {p.domain for p in STOCK[domain]} == {domain}


@pytest.mark.parametrize("prompt", EVERY, ids=lambda p: p.id)
def test_every_prompt_has_14_to_57_words(prompt: Prompt) -> None:
    assert 14 <= len(prompt.text.split()) <= 57


@pytest.mark.parametrize("prompt", EVERY, ids=lambda p: p.id)
def test_every_text_is_one_clean_line(prompt: Prompt) -> None:
    assert prompt.text == " ".join(prompt.text.split())


def test_no_two_prompts_of_the_stock_are_alike() -> None:
    words = {p.id: set(re.findall(r"\w+", fold(p.text))) for p in EVERY}
    ids = sorted(words)
    alike = [
        (one, other)
        for place, one in enumerate(ids)
        for other in ids[place + 1 :]
        if len(words[one] & words[other]) > 0.5 * len(words[one] | words[other])
    ]
    assert alike == []


def test_no_family_of_prompts_starts_from_one_template() -> None:
    starts = Counter(" ".join(fold(p.text).split()[:3]) for p in EVERY)
    assert [start for start, n in starts.items() if n > 3] == []
    assert [start for start, n in Counter(fold(p.text).split()[0] for p in EVERY).items() if n > 12] == []


def test_warm_ups_are_none_of_the_measured_prompts_even_when_folded() -> None:
    assert not {fold(p.text) for p in STOCK[WARMUP]} & {fold(p.text) for p in MEASURED}


@pytest.mark.parametrize("prompt", STOCK["code"], ids=lambda p: p.id)
def test_a_code_prompt_tells_function_parameters_and_language(prompt: Prompt) -> None:
    check = prompt.check
    assert isinstance(check, CodeCheck)
    assert f"{check.function}({', '.join(check.parameters)})" in prompt.text
    assert re.search(r"python|def ", prompt.text, re.IGNORECASE)


def test_nearly_all_code_prompts_bring_two_to_four_cases() -> None:
    counts = [len(p.check.cases) for p in STOCK["code"] if isinstance(p.check, CodeCheck)]
    assert len(counts) == 30
    assert all(n == 0 or 2 <= n <= 4 for n in counts)
    assert sum(n > 0 for n in counts) >= 25


def test_code_prompts_ask_for_functions_of_different_names() -> None:
    assert len({p.check.function for p in STOCK["code"] if isinstance(p.check, CodeCheck)}) == 30


@pytest.mark.parametrize("prompt", STOCK["json"], ids=lambda p: p.id)
def test_a_json_prompt_carries_a_valid_schema_and_names_every_key_it_requires(prompt: Prompt) -> None:
    assert isinstance(prompt.check, JsonCheck)
    schema = prompt.check.json_schema
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert "json" in prompt.text.lower()
    unnamed = [key for key in required_keys(schema) if not re.search(rf"(?<!\w){re.escape(key)}(?!\w)", prompt.text)]
    assert unnamed == []


@pytest.mark.parametrize("prompt", STOCK["json"], ids=lambda p: p.id)
def test_a_json_prompt_says_that_nothing_but_json_is_wanted(prompt: Prompt) -> None:
    says = r"\b(only|just|nothing|no other|alone|bare|plain|raw|purely|single|full stop|without|stop there|leave out)\b"
    says += r"|no (commentary|comments|text)"
    assert re.search(says, prompt.text, re.IGNORECASE) or "and stay silent" in prompt.text


@pytest.mark.parametrize("prompt", STOCK["prose"], ids=lambda p: p.id)
def test_a_prose_prompt_is_checked_for_language_length_and_points(prompt: Prompt) -> None:
    assert isinstance(prompt.check, ProseCheck)
    assert prompt.check.min_words is not None and prompt.check.max_words is not None
    assert prompt.check.max_words >= 1.5 * prompt.check.min_words
    assert prompt.check.must_name


@pytest.mark.parametrize("prompt", STOCK["prose"], ids=lambda p: p.id)
def test_the_bounds_of_a_prose_prompt_leave_a_quarter_around_the_number_it_asks_for(prompt: Prompt) -> None:
    assert isinstance(prompt.check, ProseCheck)
    assert prompt.check.min_words is not None and prompt.check.max_words is not None
    for asked in re.findall(r"(\d+)(?: to \d+)? (?:words|W|palabras)", prompt.text):
        assert prompt.check.min_words <= 0.75 * int(asked)
    for asked in re.findall(r"(\d+) (?:words|W|palabras)", prompt.text):
        assert prompt.check.max_words >= 1.25 * int(asked)


def test_the_stock_holds_more_than_one_language() -> None:
    languages = {p.check.language for p in STOCK["prose"] if isinstance(p.check, ProseCheck)}
    assert languages == {"en", "de", "es", "fr"}


@pytest.mark.parametrize("prompt", EVERY, ids=lambda p: p.id)
def test_a_dumped_prompt_reads_back_as_itself_under_the_names_of_the_file(prompt: Prompt) -> None:
    dumped = json.dumps(prompt.model_dump(mode="json"))
    assert Prompt.model_validate_json(dumped) == prompt
    assert "json_schema" not in (json.loads(dumped)["check"] or {})


def required_keys(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        required = schema.get("required", [])
        yield from (required if isinstance(required, list) else [])
        for key, value in schema.items():
            if key not in ("const", "enum"):
                yield from required_keys(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from required_keys(value)


# Strict loading


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 10**400])
def test_a_case_made_in_a_program_takes_no_number_that_json_lacks(number: float) -> None:
    for fields in ({"args": (), "result": {"a": [number]}}, {"args": (1, number), "result": None}):
        with pytest.raises(ValueError, match="a number in it is not finite"):
            Case(**fields)


def test_an_own_file_loads_with_any_domain_and_without_checks(tmp_path: Path) -> None:
    (prompt,) = load_file(saved(tmp_path, line()))
    assert (prompt.id, prompt.domain, prompt.text, prompt.check) == ("a_1", "poems", GOOD["text"], None)


def test_blank_lines_at_the_end_and_windows_line_ends_are_tolerated(tmp_path: Path) -> None:
    data = line().replace(b"\n", b"\r\n") + line(id="a_2") + b"\n  \n"
    assert [p.id for p in load_file(saved(tmp_path, data))] == ["a_1", "a_2"]


def test_a_line_separator_within_a_text_does_not_end_the_line(tmp_path: Path) -> None:
    data = json.dumps({**GOOD, "text": "one\u2028two"}, ensure_ascii=False).encode()
    assert load_file(saved(tmp_path, data))[0].text == "one\u2028two"


CODE = {"kind": "code", "language": "python", "function": "f", "parameters": ["a"], "cases": []}
PROSE = {"kind": "prose", "language": "en"}
CASE = line(check={**CODE, "cases": [{"args": ["A"], "result": "R"}]}).replace(b'"A"', b"%s").replace(b'"R"', b"%s")
FAULTS: dict[str, tuple[bytes, int, str]] = {
    "duplicate id": (line() + line(text="Other."), 2, "'a_1' stands at mine.jsonl:1 already"),
    "empty text": (line(text=""), 1, "the text is empty"),
    "text of white space": (line() + line(id="b", text=" \t "), 2, "the text is empty"),
    "unknown field": (line(colour="red"), 1, "colour: unknown field, in 'red'"),
    "missing field": (b'{"id": "a", "domain": "b"}', 1, "text: missing"),
    "number as text": (line(text=7), 1, "text: Input should be a valid string, in 7"),
    "null as id": (line(id=None), 1, "id: Input should be a valid string"),
    "id with a space": (line(id="a b"), 1, "'a b'"),
    "empty domain": (line(domain=""), 1, "domain"),
    "the domain warmup": (line(domain="warmup"), 1, "'warmup' of 'a_1' is kept"),
    "the domain all": (line(domain="all"), 1, "'all' of 'a_1' is kept for the sum of all domains"),
    "a result beyond a double": (CASE % (b"1", b"1e400"), 1, "1e400 is beyond what a double holds"),
    "an argument beyond a double": (CASE % (b"[-1e400]", b"1"), 1, "-1e400 is beyond what a double holds"),
    "a whole number beyond a double": (CASE % (b"1", b"[9%s]" % (b"0" * 400)), 1, "beyond what a double holds"),
    "NaN as a result": (CASE % (b"1", b"NaN"), 1, "NaN is no JSON number"),
    "not UTF-8": (line() + b'{"id": "\xff"}\n', 2, "b'\\xff' at byte 8 of the line is not UTF-8"),
    "UTF-16": (line().decode().encode("utf-16"), 1, "is not UTF-8"),
    "byte order mark": (b"\xef\xbb\xbf" + line(), 1, "byte order mark"),
    "blank line between": (line() + b"\n" + line(id="b"), 2, "is blank"),
    "blank first line": (b"\n" + line(), 1, "is blank"),
    "broken JSON": (line() + b'{"id": \n', 2, "is not JSON"),
    "two objects on a line": (line().strip() + line(), 1, "is not JSON"),
    "list": (b"[1]\n", 1, "is no JSON object"),
    "NaN": (b'{"id": NaN}', 1, "NaN is no JSON number"),
    "a key twice": (b'{"id": "a", "id": "b"}', 1, "the key 'id' stands twice"),
    "deep nesting": (b"[" * 100_000, 1, "is not JSON"),
    "lone surrogate": (b'{"id": "a", "domain": "b", "text": "\\ud800"}', 1, "surrogate"),
    "unknown kind of check": (line(check={"kind": "poem"}), 1, "poem"),
    "unknown field of a check": (line(check={**PROSE, "rhyme": True}), 1, "rhyme: unknown field"),
    "broken schema": (line(check={"kind": "json_schema", "schema": {"type": "strin"}}), 1, "$.type: 'strin'"),
    "schema elsewhere": (line(check={"kind": "json_schema", "schema": {"$ref": "http://a/b"}}), 1, "'http://a/b'"),
    "bounds the wrong way round": (line(check={**PROSE, "min_words": 9, "max_words": 8}), 1, "min_words 9 is above"),
    "bounds as text": (line(check={**PROSE, "min_words": "9"}), 1, "valid integer, in '9'"),
    "no alternative": (line(check={**PROSE, "must_name": [[]]}), 1, "must_name.0"),
    "an alternative of a star alone": (line(check={**PROSE, "must_name": [["*"]]}), 1, "'*'"),
    "unknown language": (line(check={**PROSE, "language": "xx"}), 1, "'xx'"),
    "function that is no name": (line(check={**CODE, "function": "f()"}), 1, "'f()' is no Python name"),
    "keyword as parameter": (line(check={**CODE, "parameters": ["class"]}), 1, "'class' is no Python name"),
    "parameter twice": (line(check={**CODE, "parameters": ["a", "a"]}), 1, "a parameter is named twice"),
    "too few args": (line(check={**CODE, "cases": [{"args": [], "result": 1}]}), 1, "0 args for 1 parameters"),
    "a case without result": (line(check={**CODE, "cases": [{"args": [1]}]}), 1, "cases.0.result: missing"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_file_is_refused_by_file_and_line_with_the_value_and_what_to_do(fault: str, tmp_path: Path) -> None:
    data, at, says = FAULTS[fault]
    error = refused(tmp_path, data)
    assert (error.path.name, error.line) == ("mine.jsonl", at)
    assert says in str(error)
    assert str(error).startswith(f"{tmp_path / 'mine.jsonl'}:{at}: ")
    assert re.search(r"; \w[^;]*$", str(error)), "the message ends with what to do"


def test_a_file_that_is_not_there_or_holds_nothing_is_refused_as_a_whole(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path, saved(tmp_path, b"\n\n")):
        with pytest.raises(PromptError) as caught:
            load_file(path)
        assert (caught.value.path, caught.value.line) == (path, None)


def test_a_file_that_is_not_there_has_no_hash(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="cannot be read"):
        file_sha256(tmp_path / "none.jsonl")


def test_the_warm_up_file_takes_no_measured_prompt_and_no_check(tmp_path: Path) -> None:
    for data in (line(), line(domain="warmup", check=PROSE)):
        with pytest.raises(PromptError, match="write the domain 'warmup' and no check"):
            load_file(saved(tmp_path, data), warmup=True)


def test_an_id_of_the_stock_is_refused_in_an_own_file_at_its_line(tmp_path: Path) -> None:
    own = saved(tmp_path, line() + line(id="code_07"))
    with pytest.raises(PromptError, match=r"mine\.jsonl:2: the id 'code_07' stands at code\.jsonl:7 already"):
        refuse_clashes([(stock_path("code"), STOCK["code"]), (own, load_file(own))])


def test_an_own_prompt_equal_to_a_warm_up_after_folding_is_refused_at_its_line(tmp_path: Path) -> None:
    text = "  " + STOCK[WARMUP][3].text.upper().replace(" ", " \n ")
    own = saved(tmp_path, line() + line(id="b", text=text))
    with pytest.raises(PromptError, match=r"mine\.jsonl:2: .* equals the warm-up one at warmup\.jsonl:4") as caught:
        refuse_clashes([(stock_path(WARMUP), STOCK[WARMUP]), (own, load_file(own))])
    assert caught.value.value == text


def test_a_warm_up_equal_to_a_measured_prompt_is_refused_at_its_line_too(tmp_path: Path) -> None:
    own = saved(tmp_path, line(text=STOCK[WARMUP][0].text.swapcase()))
    with pytest.raises(PromptError, match=r"warmup\.jsonl:1: .* equals the measured one at mine\.jsonl:1"):
        refuse_clashes([(own, load_file(own)), (stock_path(WARMUP), STOCK[WARMUP])])


@given(st.text(min_size=1), st.sampled_from([" ", "\n", "\t", "  ", "\u3000"]))
def test_folding_ignores_white_space_and_is_stable(text: str, space: str) -> None:
    assert fold(space + space.join(text.split()) + space) == fold(text)
    assert fold(fold(text)) == fold(text)


@given(st.binary(max_size=200))
def test_any_bytes_load_or_are_refused_by_our_error_alone(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = saved(tmp_path_factory.getbasetemp(), data, "any.jsonl")
    try:
        load_file(path)
    except PromptError as error:
        assert error.path == path


def test_the_room_imports_no_other_room_and_no_client() -> None:
    banned = "locust gevent openai numpy scenarios infra locustfiles evidence study analysis requests urllib3"
    code = f"import sys, prompts.load; print([m for m in {banned.split()!r} if m in sys.modules])"
    root = stock_path("code").parent.parent
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_ledgers_beside_their_scenario_are_those_that_are_made_again():
    written = (Path(__file__).parent.parent / "scenarios" / "h200-ledgers.jsonl").read_text(encoding="utf-8")
    assert prompt_file() == written
