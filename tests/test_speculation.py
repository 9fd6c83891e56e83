"""The economics of speculation, against numbers worked out elsewhere and known models."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.acceptance_model import (
    conditional_by_position,
    expected_length,
    fit_alpha,
    model_speedup,
    shares,
)
from analysis.draft_cost import CostFit, CostPoint, Separation, best_length, fit_cost, separate
from analysis.errors import AnalysisError
from analysis.goodput import goodput
from analysis.measures import Row, measure
from analysis.pairing import Observation, pair
from analysis.speculation import CycleCost, Decoded, NoCost, cycle_bounds, cycle_cost, decoded
from tests.run_factory import request

# ---- acceptance


def test_a_real_histogram_of_sglang() -> None:
    """sglang issue 33518: accepted / drafted is .293 where the model's probability is .612."""
    found = fit_alpha([11, 14, 11, 4, 0, 3])
    assert found.accepted_per_drafted == pytest.approx(0.293, abs=0.0005)
    assert found.alpha == pytest.approx(0.612, abs=0.0005)
    assert found.length_model == pytest.approx(2.440, abs=0.0005)
    assert found.length_observed == pytest.approx(2.465, abs=0.0005)
    assert found.chi2 == pytest.approx(9.4, abs=0.05)
    assert found.p_table == pytest.approx(0.05, abs=0.005)
    assert found.n_steps + found.n_accepted == 106
    assert found.merged_cells == ((0,), (1,), (2, 3), (4, 5))
    assert "merged to 4 of 6 cells" in found.why


def test_an_all_or_nothing_histogram_of_vllm_rejects_independence() -> None:
    found = fit_alpha([39, 1, 0, 3])
    assert found.alpha == pytest.approx(0.2)
    assert found.length_model == pytest.approx(1.248)
    assert found.length_observed == pytest.approx(1.233, abs=0.0005)
    assert found.chi2 == pytest.approx(27.5, abs=0.05)
    assert found.fit == "rejected"
    assert found.merged_p is None  # two cells are left, which any probability fits
    assert "simulated" in found.why


def test_acceptance_by_position_falls_with_depth() -> None:
    found = conditional_by_position([0.805, 0.632, 0.483], 1)
    assert [round(one or 0, 3) for one in found] == [0.805, 0.785, 0.764]
    assert conditional_by_position([5, 0, 0], 10) == (0.5, 0.0, None)
    with pytest.raises(AnalysisError, match="rises with depth"):
        conditional_by_position([5, 6], 10)


def test_zero_accepted_is_a_probability_of_zero_and_none_drafted_is_unknown() -> None:
    zero = fit_alpha([40, 0, 0])
    assert (zero.alpha, zero.length_model, zero.fit) == (0.0, 1.0, "not testable")
    nothing = fit_alpha([0, 0, 0])
    assert (nothing.alpha, nothing.length_observed, nothing.accepted_per_drafted) == (None, None, None)
    everything = fit_alpha([0, 0, 7])
    assert (everything.alpha, everything.length_model) == (1.0, 3.0)


def test_steps_cut_by_an_answer_s_end_bound_the_probability() -> None:
    found = fit_alpha([10, 5, 5], n_cut=4)
    assert found.alpha_bounds == (pytest.approx(15 / 30), pytest.approx(15 / 26))


@pytest.mark.parametrize("histogram", [[], [4], [3, -1]])
def test_what_is_no_histogram_is_refused(histogram: list[int]) -> None:
    with pytest.raises(AnalysisError, match="no histogram"):
        fit_alpha(histogram)


@given(st.lists(st.integers(0, 200), min_size=2, max_size=9))
def test_any_histogram_keeps_its_counts(histogram: list[int]) -> None:
    found = fit_alpha(histogram)
    assert sum(histogram) == found.n_steps
    assert sorted(place for cell in found.merged_cells for place in cell) == (
        list(range(len(histogram))) if found.alpha is not None else []
    )
    if found.alpha is not None:
        assert 0 <= found.alpha <= 1
        assert math.fsum(found.expected) == pytest.approx(sum(histogram))
        assert 1 <= (found.length_model or 0) <= len(histogram)


def test_the_fit_rejects_a_true_model_about_as_often_as_it_says() -> None:
    draws = np.random.default_rng(1)
    small = [draws.multinomial(60, shares(0.5, 4)).tolist() for _ in range(300)]
    rejected = sum(fit_alpha(histogram).fit == "rejected" for histogram in small)
    assert 0.01 <= rejected / 300 <= 0.10


def test_the_model_s_speed_up() -> None:
    assert expected_length(1.0, 5) == 6
    assert expected_length(0.8, 3) == pytest.approx((1 - 0.8**4) / 0.2)
    assert model_speedup(0.8, 3, 0.0) == pytest.approx(expected_length(0.8, 3))
    assert model_speedup(0.1, 5, 0.2) < 1


# ---- cycle cost


def answers(
    launches: int, *, t_step_s: float, steps: int | None, tokens: int = 100, spread: float = 0.0
) -> list[Decoded]:
    draws = random.Random(3)
    return [
        Decoded(
            launch=launch,
            domain=domain,
            n_tokens=tokens,
            decode_s=(steps or tokens) * t_step_s * math.exp(draws.gauss(0, spread)),
            n_steps=steps,
        )
        for launch in range(launches)
        for domain in ("code", "json")
    ]


def test_cost_break_even_and_prediction_by_hand() -> None:
    base = answers(3, t_step_s=0.02, steps=None, spread=0.001)
    arm = answers(3, t_step_s=0.03, steps=40, spread=0.001)
    found = cycle_cost(base, arm)
    assert isinstance(found, CycleCost)
    assert found.tokens_per_step == pytest.approx(2.5)
    assert found.cost == pytest.approx(1.5, rel=0.01)
    assert found.break_even_tokens_per_step == found.cost
    assert found.pays is True
    assert found.cost_interval is not None
    assert found.as_json()["predicted_speedup"] == pytest.approx(2.5 / 1.5, rel=0.01)
    for one in found.domains:
        assert one.predicted == pytest.approx(one.measured, rel=0.01)


def test_full_acceptance_can_still_be_slower() -> None:
    """Acceptance is not speed: five tokens a step, and a step costs six target passes."""
    found = cycle_cost(
        answers(3, t_step_s=0.02, steps=None, spread=0.001), answers(3, t_step_s=0.12, steps=20, spread=0.001)
    )
    assert isinstance(found, CycleCost)
    assert found.tokens_per_step == pytest.approx(5)
    assert found.pays is False
    assert found.as_json()["predicted_speedup"] < 1


def test_a_cost_that_differs_by_domain_shows_as_a_gap_of_prediction() -> None:
    base = answers(2, t_step_s=0.02, steps=None)
    arm = [one for one in answers(2, t_step_s=0.03, steps=50) if one.domain == "code"]
    arm += [one for one in answers(2, t_step_s=0.06, steps=50) if one.domain == "json"]
    found = cycle_cost(base, arm)
    assert isinstance(found, CycleCost)
    by_domain = {one.domain: one for one in found.domains}
    assert by_domain["json"].predicted > by_domain["json"].measured
    assert by_domain["code"].predicted < by_domain["code"].measured


def test_one_launch_has_a_cost_without_an_interval_and_no_claim_that_it_pays() -> None:
    found = cycle_cost(answers(1, t_step_s=0.02, steps=None), answers(1, t_step_s=0.03, steps=40))
    assert isinstance(found, CycleCost)
    assert (found.cost_interval, found.pays) == (None, None)
    assert "1 launch" in found.as_json()["why"]["cost_interval"]


def test_unknown_steps_give_no_cost_and_a_reason() -> None:
    found = cycle_cost(answers(2, t_step_s=0.02, steps=None), answers(2, t_step_s=0.02, steps=None))
    assert isinstance(found, NoCost)
    assert found.as_json()["cost"] is None
    assert "4 of 4" in found.why


def test_pairs_without_times_are_left_out_of_both_sides() -> None:
    def one(arm: str, prompt: str, decode_s: float | None) -> Observation:
        fields = {"decode_tokens": None if decode_s is None else 10, "decode_s": decode_s}
        return Observation(arm=arm, launch=0, prompt_id=prompt, domain="code", value=5.0, order=0, **fields)  # type: ignore[arg-type]  # fields by name

    pairs = pair([one("b", "p", 2.0), one("b", "q", 2.0)], [one("a", "p", 1.0), one("a", "q", None)]).pairs
    ours, theirs = decoded(pairs, {(0, pairs[0].arm.request): 4})
    assert [len(ours), len(theirs)] == [1, 1]
    assert theirs[0].n_steps == 4


@pytest.mark.parametrize("change", [{"decode_s": 0.0}, {"decode_s": math.nan}, {"n_tokens": -1}])
def test_impossible_decoding_is_refused(change: dict[str, float]) -> None:
    fields = {"launch": 0, "domain": "code", "n_tokens": 5, "decode_s": 1.0, "n_steps": 2} | change
    with pytest.raises(AnalysisError, match="cannot be decoding"):
        cycle_cost([Decoded(**fields)], [])  # type: ignore[arg-type]  # fields by name


def test_bounds_of_a_step_without_recorded_acceptance() -> None:
    low_s, high_s = cycle_bounds([58.05, 71.37, 225.95], 5) or (0, 0)
    assert (round(low_s * 1e3, 1), round(high_s * 1e3, 1)) == (17.2, 26.6)
    assert cycle_bounds([10.0, 100.0], 5) is None


# ---- the cost line


def line(
    lengths: list[int], *, launches: int = 3, a_s: float = 0.020, b_s: float = 0.002, sd: float = 1e-4
) -> list[CostPoint]:
    draws = random.Random(11)
    return [
        CostPoint(
            n_drafts=g,
            launch=launch,
            t_cycle_s=a_s + b_s * g + draws.gauss(0, sd),
            tokens_per_step=expected_length(0.7, g) * (1 + draws.gauss(0, 0.005)),
        )
        for g in lengths
        for launch in range(launches)
    ]


def test_the_line_is_found_with_its_intervals_and_the_fixed_overhead() -> None:
    found = fit_cost(line([1, 2, 3, 5, 8]), t_base_s=0.016)
    assert isinstance(found, CostFit)
    assert found.base_interval_s[0] < 0.020 < found.base_interval_s[1]
    assert found.per_draft_interval_s[0] < 0.002 < found.per_draft_interval_s[1]
    assert found.overhead_ratio == pytest.approx(0.25, abs=0.02)
    assert (found.lack_of_fit_p or 0) > 0.01


def test_the_intervals_of_the_line_cover() -> None:
    hits = 0
    for seed in range(300):
        draws = random.Random(seed)
        points = [
            CostPoint(n_drafts=g, launch=r, t_cycle_s=0.02 + 0.002 * g + draws.gauss(0, 5e-4))
            for g in (1, 2, 3, 5, 8)
            for r in range(2)
        ]
        found = fit_cost(points)
        assert isinstance(found, CostFit)
        hits += found.per_draft_interval_s[0] <= 0.002 <= found.per_draft_interval_s[1]
    assert 0.91 <= hits / 300 <= 0.985


def test_a_cost_in_steps_is_no_line() -> None:
    points = [
        CostPoint(n_drafts=g, launch=r, t_cycle_s=0.02 + (0.01 if g > 3 else 0) + 1e-4 * r)
        for g in (1, 2, 3, 5, 8)
        for r in range(3)
    ]
    found = fit_cost(points)
    assert isinstance(found, CostFit)
    assert (found.lack_of_fit_p or 1) < 0.001


@pytest.mark.parametrize(
    ("lengths", "launches", "said"), [([3], 4, "1 draft length was run"), ([1, 2], 1, "2 launches")]
)
def test_too_little_gives_not_separable_and_why(lengths: list[int], launches: int, said: str) -> None:
    found = fit_cost(line(lengths, launches=launches))
    assert isinstance(found, Separation)
    assert (found.why or "").startswith("not separable: ")
    assert said in (found.why or "")


def test_wall_time_alone_does_not_part_drafting_from_verifying() -> None:
    alone = separate(fit_cost(line([1, 2, 3, 5, 8])), None)
    assert alone.as_json()["separable"] is False
    assert "wall time alone" in (alone.why or "")
    lookup = fit_cost(line([1, 2, 3, 5, 8], b_s=0.0005))
    assert isinstance(lookup, CostFit)
    parted = separate(fit_cost(line([1, 2, 3, 5, 8])), lookup)
    assert parted.t_draft_s == pytest.approx(0.0015, abs=1e-4)
    assert parted.t_draft_interval_s is not None
    assert parted.t_draft_interval_s[0] < 0.0015 < parted.t_draft_interval_s[1]


def test_the_best_draft_length_comes_with_how_often_it_wins() -> None:
    found = best_length(line([1, 2, 3, 5, 8]), t_base_s=0.02, n_draws=300)
    truth = max((1, 2, 3, 5, 8), key=lambda g: expected_length(0.7, g) / (0.020 + 0.002 * g))
    assert found.n_drafts == truth
    assert math.fsum(found.shares.values()) == pytest.approx(1)
    assert found.shares[truth] > 0.5
    again = best_length(line([1, 2, 3, 5, 8]), t_base_s=0.02, n_draws=300)
    assert again.shares == found.shares


def test_no_best_length_without_measured_acceptance() -> None:
    points = [CostPoint(n_drafts=g, launch=r, t_cycle_s=0.02) for g in (1, 2) for r in (0, 1)]
    found = best_length(points, t_base_s=0.02)
    assert found.n_drafts is None
    assert "not measured" in (found.why or "")


# ---- goodput


def row(
    ttft_s: float, gap_s: float, n: int = 3, *, counted: bool = True, draft: int | None = 0, **changes: object
) -> Row:
    marks = [(ttft_s + gap_s * i, i, i + 1 if counted else None, 4) for i in range(n)]
    record = request(chunks=marks, **({"n_completion_tokens": n} | changes))
    return Row(request=record, measures=measure(record, max_draft_tokens=draft))


def test_a_request_is_good_when_both_objectives_hold_and_failures_count_as_not_good() -> None:
    rows = [row(0.1, 0.02), row(0.9, 0.02), row(0.1, 0.2), row(0.1, 0.02, outcome="truncated")]
    found = goodput(rows, window_s=2.0, ttft_slo_s=0.5, tpot_slo_s=0.05)
    assert (found.n_sent, found.n_good, found.n_bad, found.n_failed) == (4, 1, 2, 1)
    assert found.share == (0.25, 0.25)
    assert found.per_s == (0.5, 0.5)


def test_one_token_is_judged_by_its_ttft_and_counted_apart() -> None:
    found = goodput([row(0.1, 0.02, n=1), row(0.9, 0.02, n=1)], window_s=1.0, ttft_slo_s=0.5, tpot_slo_s=0.05)
    assert (found.n_good, found.n_bad, found.n_by_ttft_alone) == (1, 1, 2)


def test_an_uncounted_first_chunk_leaves_a_request_undecided_only_where_it_matters() -> None:
    """Nine tokens over 0.08 s: 10 ms a token if one came first, 20 ms if five did."""
    rows = [row(0.1, 0.04, counted=False, draft=4, n_completion_tokens=9)]
    assert goodput(rows, window_s=1.0, ttft_slo_s=None, tpot_slo_s=0.015).share == (0.0, 1.0)
    assert goodput(rows, window_s=1.0, ttft_slo_s=None, tpot_slo_s=0.025).share == (1.0, 1.0)
    assert goodput(rows, window_s=1.0, ttft_slo_s=None, tpot_slo_s=0.005).share == (0.0, 0.0)


def test_no_objective_gives_no_goodput_and_no_zero() -> None:
    found = goodput([row(0.1, 0.02)], window_s=1.0, ttft_slo_s=None, tpot_slo_s=None)
    assert (found.share, found.per_s) == (None, None)
    assert "no objective" in (found.why or "")
    assert goodput([], window_s=1.0, ttft_slo_s=1.0, tpot_slo_s=None).share is None
    with pytest.raises(AnalysisError):
        goodput([], window_s=0.0, ttft_slo_s=1.0, tpot_slo_s=None)
