"""What is shown beside a running run reads each line once, and says the same as reading all of them would."""

import statistics
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from evidence.records import Health
from infra.telemetry.live_view import LevelTally, LiveView
from infra.wire.client_series import Ended as Told
from study.cells import Ended
from tests.recorded_runs import recorded_run

SECONDS = st.none() | st.floats(min_value=0, max_value=100)
ENDED = st.tuples(st.sampled_from(["completed", "cancelled", "truncated"]), SECONDS, SECONDS)


def told(outcome: str, ttft_s: float | None, tpot_s: float | None) -> Told:
    unknown: dict[str, Any] = {"e2e_s": None, "n_output_tokens": None, "n_coalesced": None}
    return Told(outcome=outcome, domain="code", level=None, ttft_s=ttft_s, tpot_s=tpot_s, n_chunks=1, **unknown)


@given(st.lists(ENDED, max_size=40))
def test_medians_kept_request_by_request_are_those_of_all_completed_ones(ended):
    tally = LevelTally("")
    for one in ended:
        tally.add(told(*one))
    done = [one for one in ended if one[0] == "completed"]
    row = tally.row(None, None)
    ttft_s, tpot_s = ([one[at] for one in done if one[at] is not None] for at in (1, 2))
    rates = [1 / value for value in tpot_s if value > 0]
    expected = [statistics.median_low(values) if values else None for values in (ttft_s, tpot_s, rates)]
    assert [row[name] for name in ("ttft_median_s", "tpot_median_s", "decode_median_tok_per_s")] == expected
    counts = [sum(one[0] == outcome for one in ended) for outcome in ("completed", "cancelled", "truncated")]
    assert [row[name] for name in ("n_completed", "n_cancelled", "n_failed")] == counts
    assert row["output_tok_per_s"] is None


def test_acceptance_is_pooled_anew_only_when_there_are_more_answers():
    pooled: list[int] = []

    def pool(answers: list[Any], *, speculative: bool | None) -> Any:
        pooled.append(len(answers))
        return SimpleNamespace(as_json=lambda: {"state": "measured", "rate": 0.5, "length": None, "why": None})

    tally, adapter = LevelTally("", answers=[({}, None)]), SimpleNamespace(pooled_acceptance=pool)
    rows = [tally.row(adapter, True)["acceptance"]["rate"] for _ in range(3)]
    tally.answers.append(({}, None))
    tally.row(adapter, True)
    assert (rows, pooled) == ([0.5, 0.5, 0.5], [1, 2])


def test_ended_requests_are_counted_over_what_is_new_and_a_half_line_counts_when_it_is_whole(tmp_path: Path):
    old = tmp_path / "old" / "workers" / "0"
    old.mkdir(parents=True)
    (old / "requests.jsonl").write_text("{}\n" * 9)
    count = Ended(tmp_path)
    assert count.look() == 0
    files = [tmp_path / "new" / "workers" / str(worker) / "requests.jsonl" for worker in (0, 1)]
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_bytes(b"{}\n{")
    assert count.look() == 2
    with files[0].open("ab") as opened:
        opened.write(b"}\n{}\n")
    files[1].write_bytes(b"xx\nx")  # as long as before: nothing of it is read twice
    assert count.look() == 4


def test_the_largest_lag_is_of_each_level_that_sent_within_the_interval_though_nothing_is_under_way_at_its_end(
    tmp_path: Path,
):
    view = LiveView(recorded_run(tmp_path, "llama.cpp"))
    view.as_json()
    levels = [LevelTally(label) for label in ("one", "two", "three")]
    view._begun = {0: [(100.2, levels[0]), (100.6, levels[1]), (101.5, levels[2])]}
    view._health = {}
    for at_s, lag_s in ((101.0, 0.5), (102.0, 0.2), (103.0, 0.9)):  # in the last nothing began, nothing is under way
        health = Health(
            at_monotonic_s=at_s, interval_s=1.0, lag_p50_s=0.0, lag_max_s=lag_s, cpu_ratio=0.1, gc_pauses=0,
            gc_pause_max_s=0.0, in_flight=0,
        )  # fmt: skip
        view._note_lag(0, health)
        view._health[0] = health
    assert [one.lag_max_s for one in levels] == [0.5, 0.5, 0.2]
