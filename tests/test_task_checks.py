"""Answers are judged by their prompts' checks: right ones pass, wrong ones fail, hostile ones are survived."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import task_checks
from analysis.answer_code import fenced_blocks
from analysis.limited_run import Limits, NotRun, Ran, Returned, run_calls
from analysis.task_checks import Judgement, judge, same_json
from prompts.load import Prompt, load_stock
from tests.reference_answers import CODE, JSON, PROSE

STOCK = load_stock()
QUICK = Limits(cpu_s=1, wall_s=6.0)
ADD = {
    "kind": "code",
    "language": "python",
    "function": "add",
    "parameters": ["a", "b"],
    "cases": [{"args": [1, 2], "result": 3}, {"args": [[1], [2]], "result": [1, 2]}],
}
GOOD_ADD = "def add(a, b):\n    return a + b\n"
PAIR = {
    "kind": "json_schema",
    "schema": {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}},
}


def check_of(prompt: Prompt) -> dict[str, Any]:
    assert prompt.check is not None
    check: dict[str, Any] = json.loads(prompt.check.model_dump_json())
    return check


def judged(check: dict[str, Any], text: str) -> Judgement:
    return judge(check, text, finish_reason="stop", limits=QUICK)


# The stock's checks can be passed, and failed


@pytest.mark.parametrize("prompt", STOCK["code"], ids=lambda p: p.id)
def test_a_right_answer_to_each_code_prompt_is_valid(prompt: Prompt) -> None:
    assert (
        judge(check_of(prompt), f"Here:\n```python\n{CODE[prompt.id]}```\nDone.", finish_reason="stop").state == "valid"
    )


@pytest.mark.parametrize("prompt", [p for p in STOCK["code"] if check_of(p)["cases"]], ids=lambda p: p.id)
def test_no_code_prompt_is_passed_by_a_function_that_returns_nothing(prompt: Prompt) -> None:
    check = check_of(prompt)
    parameters = ", ".join(check["parameters"])
    assert judged(check, f"def {check['function']}({parameters}):\n    pass\n").state == "invalid"


@pytest.mark.parametrize("prompt", STOCK["json"], ids=lambda p: p.id)
def test_each_json_schema_takes_a_right_answer_and_refuses_a_wrong_one(prompt: Prompt) -> None:
    right, wrong = JSON[prompt.id]
    assert judged(check_of(prompt), json.dumps(right)) == Judgement(state="valid", why="meets the schema")
    assert judged(check_of(prompt), json.dumps(wrong)).state == "invalid"
    assert judged(check_of(prompt), "{}").state == "invalid"


@pytest.mark.parametrize("prompt_id", PROSE)
def test_a_right_answer_to_a_prose_prompt_is_valid_and_falls_with_each_of_its_points(prompt_id: str) -> None:
    check = next(check_of(p) for p in STOCK["prose"] if p.id == prompt_id)
    assert judged(check, PROSE[prompt_id]).state == "valid"
    for point in check["must_name"]:
        without = PROSE[prompt_id]
        for alternative in point:
            stem = alternative.removesuffix("*")
            without = without.replace(stem, "xx").replace(stem.capitalize(), "xx")
        assert "does not name" in judged(check, without).why


# Which answers are judged at all


def test_an_answer_cut_by_max_tokens_is_not_judged() -> None:
    judgement = judge(PAIR, '{"a": 1', finish_reason="length")
    assert judgement == Judgement(state="not judged", why="the answer was cut by max_tokens")


@pytest.mark.parametrize("reason", [None, "abort", "error", "content_filter", "tool_calls"])
def test_an_answer_that_did_not_come_to_its_end_is_not_judged(reason: str | None) -> None:
    judgement = judge(PAIR, '{"a": 1}', finish_reason=reason)
    assert judgement.state == "not judged"
    assert repr(reason) in judgement.why


def test_without_a_check_or_with_an_unknown_one_nothing_is_judged() -> None:
    assert judge(None, "x", finish_reason="stop").state == "not judged"
    assert judge({"kind": "poem"}, "x", finish_reason="stop").state == "not judged"


# JSON


@pytest.mark.parametrize("fence", ["```json\n%s\n```", "```\n%s\n```", "~~~JSON\r\n%s\r\n~~~\n", "````json\n%s````"])
def test_one_code_fence_around_json_is_allowed_and_said(fence: str) -> None:
    assert judged(PAIR, fence % '{"a": 1}') == Judgement(state="valid", why="meets the schema, within a code fence")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        'Sure! {"a": 1}',
        '{"a": 1} I hope this helps.',
        '```json\n{"a": 1}\n``` Enjoy!',
        '```json\n{"a": 1}\n```\n```json\n{"a": 2}\n```',
        '```python\n{"a": 1}\n```',
        "{'a': 1}",
        '{"a": NaN, "b": 1}',
        '{"a": 1,}',
        '{"a": 1}{"a": 1}',
        "[" * 100_000,
        '{"a": ' + "1" * 100_000 + "}",
    ],
)
def test_text_around_json_and_text_that_is_not_json_are_invalid(text: str) -> None:
    assert judged(PAIR, text).state == "invalid"


def test_what_fails_the_schema_is_told_with_its_place() -> None:
    assert judged(PAIR, '{"a": "1"}').why == "does not meet the schema at $.a: '1' is not of type 'integer'"


def test_a_schema_that_refers_elsewhere_is_not_judged_and_nothing_is_fetched() -> None:
    check = {"kind": "json_schema", "schema": {"$ref": "http://127.0.0.1:9/schema.json"}}
    judgement = judged(check, "{}")
    assert judgement.state == "not judged"
    assert "http://127.0.0.1:9/schema.json" in judgement.why


# Code: what is taken for the answer


@pytest.mark.parametrize(
    "text",
    [
        GOOD_ADD,
        f"```python\n{GOOD_ADD}```",
        f"Usage:\n```python\nprint(1)\n```\nand the function:\n```py\n{GOOD_ADD}```",
        f"```bash\npip install x\n```\n```\n{GOOD_ADD}```",
        f"```python\n{GOOD_ADD}",
        "1. Step\n   ```python\n   def add(a, b):\n       return a + b\n   ```",
        f"~~~python\n{GOOD_ADD}~~~",
        "def add(a, b=0, *, strict=False):\n    return a + b\n",
        "def add(a, b, /, *rest, **more):\n    return a + b\n",
        f"def add():\n    pass\n{GOOD_ADD}",
        f"{GOOD_ADD}\nif __name__ == '__main__':\n    raise SystemExit(add(1, 2))\n",
        f"from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n{GOOD_ADD}",
        f"print('x' * 10_000_000)\n{GOOD_ADD}",
    ],
)
def test_a_right_function_is_found_in_any_usual_shape_of_answer(text: str) -> None:
    assert judged(ADD, text) == Judgement(state="valid", why=f"2 of 2 cases give the right result{lacking()}")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "defines no function 'add' at top level"),
        ("I cannot do that.", "does not parse"),
        ("```python\ndef add(a, b)\n    return a + b\n```", "does not parse: expected ':', line 1"),
        ("def sum_of(a, b):\n    return a + b\n", "defines no function 'add'"),
        ("class S:\n    def add(self, a, b):\n        return a + b\n", "defines no function 'add'"),
        ("def add(x, y):\n    return x + y\n", "defines add(x, y) where add(a, b) was asked for"),
        ("def add(b, a):\n    return a + b\n", "defines add(b, a)"),
        ("def add(a, b, c):\n    return a + b\n", "defines add(a, b, c)"),
        ("def add(a, b, *, c):\n    return a + b\n", "defines add(a, b, c)"),
        ("def add(a):\n    return a\n", "defines add(a)"),
        ("def add(a, b):\n    return '" + "\\" + "d'\x00", "does not parse"),
        ("(" * 5000, "does not parse"),
        ("x = " + "-" * 200_000 + "1", "does not parse"),
    ],
)
def test_code_without_the_function_asked_for_is_invalid(text: str, why: str) -> None:
    judgement = judged(ADD, text)
    assert judgement.state == "invalid"
    assert why in judgement.why


def test_fenced_blocks_of_other_languages_are_no_python() -> None:
    assert fenced_blocks("```js\na\n```\n```Python title=x\nb\n```\n````\n```\nc\n````\n") == ["b", "```\nc"]


@given(st.text())
def test_any_text_is_split_into_blocks_without_an_error(text: str) -> None:
    assert all(isinstance(block, str) for block in fenced_blocks(text))


def test_a_task_without_cases_is_judged_by_parsing_and_parameters_alone() -> None:
    check = {**ADD, "cases": []}
    assert judged(check, "async def add(a, b):\n    await a\n").state == "valid"
    assert judged(check, "async def add(a, c):\n    await a\n").state == "invalid"


# Code: results


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("return a - b", "case 1 of 2: gave -1, not 3"),
        ("return a + b if a == 1 else (a[0],)", "case 2 of 2: gave [1], not [1, 2]"),
        ("return str(a + b)", 'case 1 of 2: gave "3", not 3'),
        ("return a / 0", "case 1 of 2: ZeroDivisionError: division by zero"),
        ("return {a, b}", "case 1 of 2: TypeError: Object of type set is not JSON serializable"),
        ("return float('nan')", "case 1 of 2: ValueError"),
        ("return None", "case 1 of 2: gave null, not 3"),
    ],
)
def test_a_wrong_result_is_told_with_its_case(body: str, why: str) -> None:
    assert judged(ADD, f"def add(a, b):\n    {body}\n").why.startswith(why)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (True, 1, False),
        (0, False, False),
        (True, True, True),
        (2, 2.0, True),
        (0.1 + 0.2, 0.3, True),
        (0.3, 0.300001, False),
        (10**20, 10**20 + 1, False),
        ("1", 1, False),
        (None, 0, False),
        (None, None, True),
        ([1, [2]], [1, [2]], True),
        ([1, 2], [2, 1], False),
        ([1], [1, 2], False),
        ({"a": 1, "b": [True]}, {"b": [True], "a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({}, [], False),
        (10**400, 1.5, False),
        (1e308, 10**400, False),
    ],
)
def test_results_are_compared_as_json(one: Any, other: Any, same: bool) -> None:
    assert same_json(one, other) is same
    assert same_json(other, one) is same


def test_tuples_iterators_and_whole_number_keys_count_as_their_json() -> None:
    check = {**ADD, "cases": [{"args": [1, 2], "result": [[1, 2], {"1": 2}]}]}
    assert judged(check, "def add(a, b):\n    yield (a, b)\n    yield {a: b}\n").state == "valid"


# Code: hostile answers

HOSTILE: dict[str, tuple[str, str]] = {
    "infinite loop": ("while True: pass", "more than 1 s of processor time"),
    "infinite loop that keeps out every error": (
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass\n",
        "more than 1 s of processor time",
    ),
    "fork bomb": ("import os\nwhile True: os.fork()", "os.fork is not allowed here"),
    "thread bomb": ("import threading\nwhile True: threading.Thread(target=print).start()", "can't start new thread"),
    "process by the subprocess module": ("import subprocess; subprocess.run(['true'])", "subprocess.Popen"),
    "sys.exit": ("import sys; sys.exit(0)", "SystemExit"),
    "exit without a word": ("import os; os._exit(0)", "the process ended before the call returned"),
    "death by a signal": ("import os; os.abort()", "the process died (SIG"),
    "memory": ("x = [0] * 10**12", "MemoryError"),
    "memory, slowly": ("x = []\nwhile True: x.append(bytearray(10**7))", "MemoryError"),
    "file": ("open('x', 'w')", "open is not allowed here"),
    "file removed": (f"import os; os.remove({__file__!r})", "os.remove is not allowed here"),
    "socket": ("import socket; socket.create_connection(('127.0.0.1', 9))", "not allowed here"),
    "signal to its parent": ("import os; os.kill(os.getppid(), 9)", "os.kill is not allowed here"),
    "foreign functions": ("import ctypes; ctypes.CDLL(None).fork()", "ctypes.dlopen is not allowed here"),
    "higher limits": ("import resource; resource.setrlimit(7, (9, 9))", "resource.setrlimit is not allowed here"),
    "input": ("input()", "EOFError"),
    "an error that cannot be shown": (
        "class E(BaseException):\n    def __str__(self): raise self\nraise E",
        "an exception that cannot be shown",
    ),
    "forged results": (
        "import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'[]\\n')\n    except OSError: pass",
        "not a result",
    ),
}


def lacking() -> str:
    ran = run_calls("def f(): return 1", "f", [[]])
    assert isinstance(ran, Ran)
    return f" (run without: {', '.join(ran.lacking)})" if ran.lacking else ""


@pytest.mark.parametrize("attack", HOSTILE)
def test_a_hostile_answer_is_survived_and_named(attack: str) -> None:
    code, why = HOSTILE[attack]
    judgement = judged(ADD, f"{GOOD_ADD}\n{code}\n")
    assert judgement.state == "invalid"
    assert why in judgement.why


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import time; time.sleep(1000)", "no result within 1.5 s"),
        ("import os, time; os.closerange(0, 64); time.sleep(1000)", "went on for 1.5 s"),
    ],
)
def test_an_answer_that_sleeps_is_ended_by_the_wall_clock(code: str, why: str) -> None:
    judgement = judge(ADD, f"{GOOD_ADD}\n{code}\n", finish_reason="stop", limits=Limits(wall_s=1.5))
    assert judgement.state == "invalid"
    assert why in judgement.why


@pytest.mark.parametrize("where", ["return 'x' * 10**8", "return list(range(10**6))"])
def test_a_huge_result_is_cut_off(where: str) -> None:
    why = judged(ADD, f"def add(a, b):\n    {where}\n").why
    assert "more than 1048576 bytes of results" in why or "processor time" in why


def test_endless_recursion_and_endless_iterators_are_errors_or_huge_not_a_hang() -> None:
    assert "RecursionError" in judged(ADD, "def add(a, b):\n    return add(a, b)\n").why
    endless = "import itertools\ndef add(a, b):\n    return itertools.count()\n"
    assert judged(ADD, endless).state == "invalid"


def test_a_result_nested_too_deeply_is_an_error() -> None:
    deep = "def add(a, b):\n    r = []\n    for _ in range(%d): r = [r]\n    return r\n"
    for depth in (200, 700, 900, 950, 980, 990, 100_000):
        assert judged(ADD, deep % depth).state == "invalid"


def test_an_answer_is_never_told_the_results_wanted() -> None:
    peek = "import gc\ndef add(a, b):\n    return [x for x in gc.get_objects() if x == 'a ' + 'secret'] or 'unknown'\n"
    check = {**ADD, "cases": [{"args": [1, 2], "result": "a secret"}]}
    assert judged(check, peek).state == "invalid"


def test_the_system_call_filter_holds_where_the_audit_hook_does_not_look() -> None:
    calls = ["os.mkfifo('x')", "os.pipe()", "os.memfd_create('x')", "os.setuid(0)", "os.sched_setaffinity(0, {0})"]
    code = "import os\ndef f(text):\n    return eval(text)\n"
    ran = run_calls(code, "f", [[call] for call in calls])
    assert isinstance(ran, Ran)
    if "system calls filtered" not in ran.guards:
        pytest.skip("this system offers no system call filter")
    assert [call.error for call in ran.calls] == ["PermissionError: [Errno 1] Operation not permitted"] * len(calls)


def test_a_process_started_past_the_audit_hook_is_refused_by_the_system() -> None:
    code = """
import _posixsubprocess
def f():
    descriptors = (-1, -1, -1, -1, -1, -1, -1, 60)
    who = (True, 0, 0, None, None, None, -1, None)
    return _posixsubprocess.fork_exec([b"true"], [b"/bin/true"], True, (60,), None, None, *descriptors, *who, True)
"""
    ran = run_calls(code, "f", [[]])
    assert isinstance(ran, Ran)
    assert ran.calls[0].error in (
        "PermissionError: [Errno 1] Operation not permitted",  # by the filter
        "BlockingIOError: [Errno 11] Resource temporarily unavailable",  # by the limit
    )


def test_nothing_of_the_environment_or_of_this_project_is_seen_by_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    code = "import os, sys\ndef f():\n    return [sorted(os.environ), os.listdir(), sys.path]\n"
    ran = run_calls(code, "f", [[]])
    assert isinstance(ran, Ran)
    names, files, path = ran.calls[0].value
    assert (names, files) == (["LC_ALL", "TZ"], [])
    assert not [part for part in path if "site-packages" in part or part == str(Path.cwd())]


def test_the_working_folder_is_gone_afterwards_and_no_process_is_left() -> None:
    code = "import os\ndef f():\n    return [os.getcwd(), os.getpid()]\n"
    ran = run_calls(code, "f", [[]])
    assert isinstance(ran, Ran)
    folder, pid = ran.calls[0].value
    assert not Path(folder).exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_guards_that_a_system_lacks_are_said_and_without_any_limit_nothing_is_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fine = (Returned(value=3, error=None), Returned(value=[1, 2], error=None))
    ran: Ran | NotRun = Ran(calls=fine, stopped=None, guards=("audit hook",), lacking=("own network name space",))
    monkeypatch.setattr(task_checks, "run_calls", lambda *_: ran)
    assert judged(ADD, GOOD_ADD).why == "2 of 2 cases give the right result (run without: own network name space)"
    ran = NotRun(why="no limits here")
    assert judged(ADD, GOOD_ADD) == Judgement(state="not judged", why="the cases were not run: no limits here")


# Prose

ENGLISH = "The ferry leaves the harbour at nine in the morning and it is full of people with bags, dogs and a piano."
GERMAN = "Die Fähre verlässt den Hafen um neun Uhr und ist voll von Leuten mit Taschen, die auf dem Deck nicht sitzen."
SPANISH = "El barco sale del puerto a las nueve de la mañana y está lleno de gente que lleva bolsas con su perro."
FRENCH = "Le bateau quitte le port à neuf heures du matin et il est plein de gens avec des sacs qui ne sont pas lourds."
TEXTS = {"en": ENGLISH, "de": GERMAN, "es": SPANISH, "fr": FRENCH}


@pytest.mark.parametrize("language", TEXTS)
@pytest.mark.parametrize("wanted", TEXTS)
def test_the_language_is_told_by_its_stop_words(language: str, wanted: str) -> None:
    judgement = judged({"kind": "prose", "language": wanted}, TEXTS[language])
    assert judgement.state == ("valid" if language == wanted else "invalid"), judgement.why


def test_words_without_any_stop_word_are_no_language() -> None:
    assert "not in the language 'en'" in judged({"kind": "prose", "language": "en"}, "lorem " * 40).why


def test_below_ten_words_the_language_is_not_looked_at() -> None:
    assert judged({"kind": "prose", "language": "en"}, "Bonjour tout le monde!").state == "valid"


@pytest.mark.parametrize(("n", "state"), [(11, "invalid"), (12, "valid"), (20, "valid"), (21, "invalid")])
def test_both_bounds_of_the_length_are_accepted_and_what_lies_outside_is_not(n: int, state: str) -> None:
    text = " - ".join(["the **end**"] * (n // 2) + ["of"] * (n % 2))
    check = {"kind": "prose", "language": "en", "min_words": 12, "max_words": 20}
    judgement = judged(check, text)
    assert judgement.state == state
    assert judgement.why.startswith(f"{n} words")


def test_an_answer_of_signs_alone_has_no_words() -> None:
    for text in ("", " \n", "*** --- !!!"):
        assert judged({"kind": "prose", "language": "en"}, text).why == "the answer has no words"


@pytest.mark.parametrize(
    ("alternatives", "found"),
    [
        (["piano"], True),
        (["PIANO"], True),
        (["bag"], False),
        (["bag*"], True),
        (["ferr*"], True),
        (["erry"], False),
        (["harbour at\u00a0nine"], True),
        (["harp", "dogs"], True),
        (["a.piano"], False),
    ],
)
def test_points_are_named_by_whole_words_or_by_how_they_begin(alternatives: list[str], found: bool) -> None:
    check = {"kind": "prose", "language": "en", "must_name": [["ferry"], alternatives]}
    assert judged(check, ENGLISH).state == ("valid" if found else "invalid")


def test_letters_with_combining_accents_and_curly_apostrophes_are_the_same_letters() -> None:
    check = {"kind": "prose", "language": "en", "must_name": [["café"], ["sun's light"]]}
    assert judged(check, "The cafe\u0301 in the sun’s light").state == "valid"


@given(st.text(), st.sampled_from([p for name in ("json", "prose") for p in STOCK[name]]))
def test_any_text_gets_a_judgement_from_the_checks_that_run_nothing(text: str, prompt: Prompt) -> None:
    assert judged(check_of(prompt), text).state in ("valid", "invalid")


def test_judging_imports_no_client() -> None:
    banned = "locust gevent openai requests urllib3 httpx httpx2 prompts"
    code = f"import sys, analysis.task_checks; print([m for m in {banned.split()!r} if m in sys.modules])"
    root = Path(task_checks.__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_long_line_that_is_no_fence_is_passed_over_once_and_not_from_each_of_its_letters() -> None:
    """Two million letters: looked at from each of them, the child would be at it for hours."""
    lines = "[mark * 1_000_000 + 'x' * 1_000_000 + ' `' for mark in '~`']"
    code = f"from analysis.answer_code import fenced_blocks; print([fenced_blocks(line) for line in {lines}])"
    root = Path(task_checks.__file__).parent.parent
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[[], []]"


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1e308", "1" + "0" * 400])
def test_a_number_beyond_a_float_is_invalid_and_no_crash(number: str) -> None:
    check = {"kind": "json_schema", "schema": {"type": "number", "multipleOf": 0.3}}
    assert judged(check, number).state == "invalid"
