"""One arm against its baseline: verdicts by the stated rule, what can be seen at all, and what stands beside."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from analysis.comparison import Beside, compare_arms, not_measured
from analysis.effect import detectable, judge
from analysis.paired import crossed
from analysis.pairing import Observation, Request

CONTRACT = (
    *("arm", "n_pairs", "n_launches", "ratio", "interval", "scope", "mde", "outputs_equal", "outputs_compared"),
    *("n_judged", "n_valid", "e2e_ratio", "ttft_ratio", "acceptance", "cycle_cost", "verdict", "by_domain"),
    "not_measured",
)


def arm(
    name: str, launches: list[float], *, prompts: int = 6, factor: float = 1.0, n_tokens: int | None = 48, **more: Any
) -> list[Observation]:
    """Observations whose rate is 50 x factor x launch's own x a little by prompt; half code, half json."""
    found = []
    for launch, own in enumerate(launches):
        for p in range(prompts):
            rate = 50.0 * factor * own * (1 + 0.001 * ((p * 7 + launch * 3) % 5))
            found.append(
                Observation(
                    arm=name,
                    launch=launch,
                    prompt_id=f"p{p}",
                    domain="code" if p % 2 else "json",
                    value=rate,
                    order=p,
                    n_tokens=n_tokens,
                    decode_tokens=47,
                    decode_s=47 / rate,
                    ttft_s=0.1 / factor,
                    e2e_s=0.1 / factor + 47 / rate,
                    **more,
                )
            )
    return found


NOISE = [1.0, 1.01, 0.99, 1.004]


def test_the_keys_of_the_contract_are_all_there_and_it_is_json() -> None:
    report = compare_arms(arm("base", NOISE), arm("fast", NOISE, factor=1.3)).as_json()
    assert set(CONTRACT) <= set(report)
    json.dumps(report, allow_nan=False)
    assert report["n_pairs"] == 24
    assert report["n_launches"] == 4
    assert set(report["by_domain"]) == {"code", "json"}


@pytest.mark.parametrize(
    ("factor", "own", "verdict"),
    [
        (1.3, [1.0, 1.012, 0.991, 1.004], "faster"),
        (0.8, [1.0, 1.012, 0.991, 1.004], "slower"),
        (1.0, [1.001, 1.0101, 0.9902, 1.003], "no difference"),
        (1.02, [1.0, 1.08, 0.92, 1.0], "not resolved"),
    ],
)
def test_verdicts_by_the_stated_rule(factor: float, own: list[float], verdict: str) -> None:
    report = compare_arms(arm("base", NOISE), arm("other", own, factor=factor)).as_json()
    assert report["verdict"] == verdict, report["because"]
    assert report["mde"] is not None


def test_no_difference_hangs_on_the_margin_fixed_before() -> None:
    base, other = arm("base", NOISE), arm("other", [1.001, 1.0101, 0.9902, 1.003])
    assert compare_arms(base, other, margin=0.02).as_json()["verdict"] == "no difference"
    assert compare_arms(base, other, margin=0.0005).as_json()["verdict"] == "not resolved"


def test_one_launch_is_never_faster_whatever_its_ratio() -> None:
    report = compare_arms(arm("base", [1.0], prompts=90), arm("fast", [1.0], prompts=90, factor=4.0)).as_json()
    assert report["ratio"] == pytest.approx(4.0)
    assert (report["scope"], report["interval"], report["mde"]) == ("prompts only", None, None)
    assert report["verdict"] == "not resolved"


def test_the_margin_and_the_interval_can_both_hold() -> None:
    """A tiny and well resolved gain is faster, and within the margin too."""
    report = compare_arms(arm("base", NOISE), arm("arm", [1.0051, 1.0150, 0.9949, 1.0090])).as_json()
    assert report["verdict"] == "faster"
    assert report["within_margin"] is True


@pytest.mark.parametrize(
    ("sd_percent", "launches", "percent"),
    [
        *[(0.3, k, mde) for k, mde in ((3, 0.93), (4, 0.62), (5, 0.50), (6, 0.43), (8, 0.35), (10, 0.30), (20, 0.20))],
        *[(0.5, k, mde) for k, mde in ((3, 1.55), (4, 1.04), (5, 0.83), (6, 0.71), (8, 0.58), (10, 0.50), (20, 0.33))],
        *[(1.0, k, mde) for k, mde in ((3, 3.10), (4, 2.08), (5, 1.66), (6, 1.42), (8, 1.15), (10, 0.99), (20, 0.66))],
    ],
)
def test_the_least_detectable_effect_by_spread_and_launches(sd_percent: float, launches: int, percent: float) -> None:
    assert detectable(sd_percent / 100, launches) * 100 == pytest.approx(percent, abs=0.0051)


def test_the_least_detectable_effect_stands_on_the_launches_log_ratios() -> None:
    found = crossed([[0.0, 0.2], [0.02, 0.22], [0.01, 0.21]])
    judged = judge(found)
    assert judged.mde == pytest.approx(detectable(0.01, 3))
    assert judged.mde_prompts is not None
    assert judged.mde_prompts > judged.mde


@pytest.mark.parametrize("logs", [[[0.0, 0.2], [0.02, 0.22], [0.01, 0.21]], [[0.1, 0.4], [0.5, 0.1]]])
def test_what_a_table_says_would_stay_unseen_is_never_within_the_interval_beside_it(logs: list[list[float]]) -> None:
    found = crossed(logs)
    assert found.interval is not None
    half = math.log(found.interval[1] / found.interval[0]) / 2
    mde = judge(found).mde_crossed
    assert mde is not None and mde > half


def test_unequal_lengths_leave_no_end_to_end_ratio_but_that_of_equal_pairs() -> None:
    other = arm("arm", NOISE, factor=2.0)
    changed = [*other[:-1], Observation(**{n: getattr(other[-1], n) for n in other[-1].__slots__} | {"n_tokens": 40})]
    report = compare_arms(arm("base", NOISE), changed).as_json()
    assert report["n_lengths_differ"] == 1
    assert report["e2e_ratio"] is None
    assert "1 differ in length" in report["why"]["e2e_ratio"]
    assert report["e2e_ratio_equal_lengths"] is not None
    assert report["ratio"] == pytest.approx(2.0)


def test_unknown_lengths_are_not_equal_lengths() -> None:
    report = compare_arms(arm("base", NOISE, n_tokens=None), arm("arm", NOISE, n_tokens=None)).as_json()
    assert report["e2e_ratio"] is None
    assert report["n_lengths_unknown"] == 24


def test_a_time_ratio_below_one_is_faster() -> None:
    report = compare_arms(arm("base", NOISE), arm("arm", NOISE, factor=2.0)).as_json()
    assert report["ttft_ratio"] == pytest.approx(0.5)
    assert report["e2e_ratio"] < 1


def test_each_domain_has_its_own_ratio_and_verdict() -> None:
    other = [*[o for o in arm("arm", [1.0, 1.013, 0.993, 1.002], factor=1.5) if o.domain == "json"]]
    other += [o for o in arm("arm", [1.0, 1.013, 0.993, 1.002], factor=0.7) if o.domain == "code"]
    domains = compare_arms(arm("base", NOISE), other).as_json()["by_domain"]
    assert domains["json"]["verdict"] == "faster"
    assert domains["code"]["verdict"] == "slower"


def test_each_level_has_its_own_ratio() -> None:
    base = arm("base", NOISE, level="1") + arm("base", NOISE, level="8")
    other = arm("arm", NOISE, factor=2.0, level="1") + arm("arm", NOISE, factor=0.5, level="8")
    report = compare_arms(base, other).as_json()
    assert report["by_level"]["1"]["ratio"] == pytest.approx(2.0)
    assert report["by_level"]["8"]["ratio"] == pytest.approx(0.5)
    assert report["ratio"] == pytest.approx(1.0)


def test_a_ratio_over_some_pairs_only_says_which() -> None:
    base, other = arm("base", NOISE), arm("arm", NOISE, factor=1.5)
    kept = {(launch, Request(None, f"p{p}", 0)) for launch in range(4) for p in (0, 1, 2)}
    report = compare_arms(base, other, only=kept, subset="equal answers").as_json()
    assert report["subset"] == "equal answers"
    assert report["n_prompts"] == 3
    assert "outside the pairs asked for" in report["coverage"]["left_out_prompts"]["p5"]


def test_other_ratios_are_named_and_the_total_follows_the_tokens() -> None:
    others = compare_arms(arm("base", NOISE), arm("arm", NOISE, factor=1.25)).as_json()["other_ratios"]
    for name in ("ratio_of_medians", "median_of_ratios", "ratio_of_means", "total_token_ratio"):
        assert others[name] == pytest.approx(1.25)


def test_an_arm_without_a_completed_request_has_a_reason_and_no_number() -> None:
    failed = [
        Observation(arm="arm", launch=0, prompt_id="p0", domain="code", value=None, order=0, why="failed: http_error")
    ]
    report = compare_arms(arm("base", [1.0]), failed).as_json()
    assert report["ratio"] is None
    assert report["verdict"] == "not resolved"
    assert "measured nothing" in report["why"]["ratio"]
    json.dumps(report, allow_nan=False)


def test_an_arm_that_did_not_run_is_not_measured_at_a_stage_with_a_symptom() -> None:
    report = not_measured("badpair", stage="first_answer", symptom="no proof that it speculates")
    assert set(CONTRACT) <= set(report)
    assert report["verdict"] is None
    assert report["not_measured"]["stage"] == "first_answer"
    assert report["not_measured"]["cause"] is None
    assert report["because"] == "not measured: first_answer, no proof that it speculates"


def test_what_other_evidence_says_stands_beside() -> None:
    beside = Beside(outputs_equal=5, outputs_compared=6, why={"acceptance": "no endpoint"})
    report = compare_arms(arm("base", NOISE), arm("arm", NOISE), beside=beside).as_json()
    assert (report["outputs_equal"], report["outputs_compared"]) == (5, 6)
    assert report["why"]["acceptance"] == "no endpoint"


def test_a_gate_asks_for_the_interval_s_lower_end() -> None:
    found = compare_arms(arm("base", NOISE), arm("arm", [1.0, 1.012, 0.991, 1.004], factor=1.3))
    assert found.meets(1.2)[0]
    assert not found.meets(1.3)[0]
    one = compare_arms(arm("base", [1.0]), arm("arm", [1.0], factor=3.0))
    met, why = one.meets(1.0)
    assert not met
    assert "one launch" in why


def test_the_ratio_is_the_geometric_mean_of_paired_ratios() -> None:
    base, other = arm("base", NOISE), arm("arm", [1.1, 1.0, 1.2, 0.9])
    logs = [math.log((b.value or 0) / (a.value or 1)) for a, b in zip(base, other, strict=True)]
    assert compare_arms(base, other).as_json()["ratio"] == pytest.approx(math.exp(sum(logs) / len(logs)))


def test_what_a_level_did_is_no_drift_and_no_want_of_warm_up() -> None:
    base = [
        *arm("base", NOISE, level="users=1"),
        *(replace(one, order=one.order + 6, repeat=1) for one in arm("base", NOISE, level="users=8", factor=0.5)),
    ]
    report = compare_arms(base, [replace(one, arm="fast") for one in base]).as_json()
    order = report["order"]
    for found in (order["baseline"], order["arm"], order["ratio"]):
        assert found["per_request"] is None and not found["seen"] and "several levels" in found["why"]
    assert order["warm_up"]["arm"]["sufficed"] is None
    assert "several levels" in order["warm_up"]["arm"]["why"]
    one_level = [one for one in base if one.level == "users=1"]
    assert compare_arms(one_level, one_level).as_json()["order"]["baseline"]["per_request"] is not None
