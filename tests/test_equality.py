"""An arm's answers beside the baseline's, and beside what the baseline does to itself."""

from dataclasses import replace

from analysis.equality import equal_pairs, equality, token_at
from analysis.outputs import Pair
from tests.run_factory import request

EQUAL = Pair(
    prompt_id="p1",
    domain="code",
    level=None,
    repeat=0,
    equal=True,
    why="identical",
    part=None,
    first_divergence_char=None,
    n_chars=(10, 10),
    n_completion_tokens=(5, 5),
    finish_reason=("stop", "stop"),
)


def differs(prompt_id: str = "p1", at: int = 4) -> Pair:
    return replace(
        EQUAL,
        prompt_id=prompt_id,
        equal=False,
        first_divergence_char=at,
        n_completion_tokens=(5, 7),
        finish_reason=("stop", "length"),
    )


def test_identical_answers_are_called_so() -> None:
    found = equality([(EQUAL, None), (replace(EQUAL, prompt_id="p2"), None)], [])
    assert (found.outputs_class, found.outputs_equal, found.outputs_compared) == ("identical", 2, 2)


def test_a_difference_where_the_control_agrees_with_itself_counts_against_the_arm() -> None:
    found = equality([(differs(), (2, 3)), (EQUAL, None)], [EQUAL, EQUAL])
    assert found.outputs_class == "differs more than the control"
    (prompt,) = found.prompts
    assert (prompt.n_compared, prompt.n_equal) == (2, 1)
    assert (prompt.first_divergence_char, prompt.first_divergence_token) == (4, (2, 3))
    assert (prompt.n_length_differs, prompt.n_finish_reason_differs) == (1, 1)


def test_a_difference_that_the_control_shows_too_does_not() -> None:
    found = equality([(differs(), None)], [differs(), EQUAL])
    assert found.outputs_class == "as the control differs"
    assert (found.control_compared, found.control_equal) == (2, 1)


def test_without_a_control_a_difference_has_no_measure() -> None:
    assert equality([(differs(), None)], []).outputs_class == "differs, control unknown"


def test_nothing_comparable_is_no_equality() -> None:
    found = equality([(replace(EQUAL, equal=None, why="failed"), None)], [])
    assert found.outputs_class is None
    assert found.outputs_compared == 0


def test_the_token_of_a_divergence_is_read_from_the_server_s_counts() -> None:
    record = request(chunks=[(0.1, 0, 1, 4), (0.2, 1, 3, 6)], output_text="alpha beta", n_completion_tokens=3)
    assert token_at(record, 0) == (1, 1)
    assert token_at(record, 3) == (1, 1)
    assert token_at(record, 4) == (2, 3)
    assert token_at(record, 10) == (4, 4)


def test_without_counts_there_is_no_token() -> None:
    assert token_at(request(chunks=[(0.1, 0, None, 10)], n_completion_tokens=3), 2) is None
    assert token_at(request(chunks=[(0.1, 0, 1, 4)], reasoning_text="hm"), 2) is None
    assert token_at(request(chunks=[(0.1, 0, 1, 4)], output_text="longer than marked"), 2) is None


def test_equal_pairs_are_named_by_launch_and_request() -> None:
    found = equal_pairs({0: [EQUAL], 1: [differs()]})
    assert [(launch, asked.prompt_id) for launch, asked in found] == [(0, "p1")]
