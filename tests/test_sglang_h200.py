"""SGLang 0.5.17 on an H200 as captured: what the counters, answers, settings and logs of seven arms must be read as."""

import functools
import json
import re
import tarfile
from itertools import pairwise
from pathlib import Path

import pytest
from engine_bodies import reader, window

from analysis import identity
from analysis.compare_report import Asked, compare_all
from analysis.loading import LoadedRun, load_run
from analysis.study_loading import load_pairs
from analysis.summary import summarise
from analysis.summary_view import one_run
from evidence.verify import verify
from infra.context_limit import context_limit
from infra.engines import sglang_request
from infra.engines.acceptance import Acceptance
from infra.engines.readings import Absent, Measured, value_or_none
from infra.launching.engine_log import EngineLog
from infra.launching.log_dialects import SGLANG
from infra.provenance.server_identity import names_side_by_side
from infra.tokenize import _count
from infra.wire.stream import StreamFacts
from study.starts import unmatched
from tests.stream_bytes import read

FIXTURES = Path(__file__).parent / "fixtures" / "sglang-0.5.17-h200"
SG = reader("sglang", "0.5.17")
ARM = "sglang-smollm2-"
SPECULATING = ("ngram", "eagle3-random", "standalone-self", "permuted")


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both archives laid out."""
    folder = tmp_path_factory.mktemp("h200")
    for name in ("captures", "runs"):
        with tarfile.open(FIXTURES / f"{name}.tar.xz") as archive:
            archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def launches(at: Path) -> dict[str, tuple[Path, dict]]:
    found = {}
    for folder in sorted((at / "launches").iterdir()):
        launch = json.loads((folder / "launch.json").read_bytes())
        found[launch["arm"]["name"].removeprefix(ARM)] = (folder, launch)
    return found


def run_at(at: Path, name: str) -> Path:
    (folder,) = (at / f"runs-{name}").iterdir()
    return folder


@functools.cache
def run_of(at: Path, name: str) -> LoadedRun:
    return load_run(run_at(at, name))


def said(at: Path, name: str) -> dict:
    return json.loads((at / name).read_bytes())


def around(at: Path, arm: str, what: str, *, speculative: bool | None = True) -> Acceptance:
    """By the counters before and after ``what`` alone."""
    before, after = ((at / arm / f"metrics.{what}.{side}.prom").read_text() for side in ("before", "after"))
    return SG.acceptance([window(SG, before, after)], speculative=speculative)


def natives(at: Path, arm: str) -> list[tuple[dict, None]]:
    return [(said(at, f"{arm}/generate.{what}.json"), None) for what in ("code", "prose", "json")]


# ---- acceptance: the counters against what the server says of each request ----


@pytest.mark.parametrize(
    ("arm", "steps", "by_counters", "by_answers", "slots"),
    [("ngram", 201, 276, 289, 11), ("eagle3-random", 452, 0, 0, 3), ("standalone-self", 122, 321, 324, 3),
     ("permuted", 475, 2, 2, 3)],
)  # fmt: skip
def test_counters_and_the_answers_own_counts_differ_by_what_a_stop_trims(
    at, arm, steps, by_counters, by_answers, slots
):
    counted, told = around(at, arm, "generate"), SG.pooled_acceptance(natives(at, arm), speculative=True)
    assert counted.n_verify_steps == told.n_verify_steps == Measured(steps)
    assert (value_or_none(counted.n_accepted), value_or_none(told.n_accepted)) == (by_counters, by_answers)
    assert counted.n_drafted == told.n_drafted == Measured(steps * slots)
    assert counted.tokens_per_target_step == told.tokens_per_target_step
    assert 0 <= by_answers - by_counters <= 3 * slots
    assert counted.state == told.state == ("zero" if by_answers == 0 else "value")


@pytest.mark.parametrize(
    ("arm", "what", "tokens", "steps"),
    [("ngram", "prose", 160, 74), ("ngram", "code", 157, 119), ("ngram", "json", 160, 53),
     ("eagle3-random", "json", 160, 159), ("standalone-self", "code", 160, 40), ("permuted", "code", 160, 158)],
)  # fmt: skip
def test_a_single_streamed_request_has_its_tokens_less_one_over_its_steps(at, arm, what, tokens, steps):
    found = around(at, arm, what)
    assert found.n_verify_steps == Measured(steps)
    assert found.n_accepted == Measured(tokens - 1 - steps)
    assert found.length == found.tokens_per_target_step == Measured((tokens - 1) / steps)


@pytest.mark.parametrize("arm", SPECULATING)
def test_each_answers_histogram_holds_its_steps_and_its_accepted_drafts(at, arm):
    for fields, _ in natives(at, arm):
        bars, meta = sglang_request.histogram(fields), fields["meta_info"]
        assert sum(bars) == meta["spec_verify_ct"]
        assert sum(j * n for j, n in enumerate(bars)) == meta["spec_num_correct_drafts"]
        assert meta["spec_accept_length"] == meta["completion_tokens"] / meta["spec_verify_ct"]  # the prefill token too


def test_a_server_without_speculation_is_absent_whoever_says_so(at):
    for speculative in (False, None):
        found = around(at, "baseline", "generate", speculative=speculative)
        assert found.state == "absent"
        assert isinstance(found.n_verify_steps, Absent)
    assert "477 decode tokens" in (around(at, "baseline", "generate", speculative=None).why or "")


def test_the_servers_own_averages_are_of_its_last_report_and_of_no_run(at):
    """Beside 2.37 tokens a step of the three requests: a gauge of 2.6, a load report of 2.01."""
    after = (at / "ngram/metrics.end.prom").read_text()
    (gauge,) = re.findall(r"^sglang:spec_accept_length\{.*\} (.*)$", after, re.MULTILINE)
    (load,) = said(at, "ngram/loads.json")["loads"]
    assert (float(gauge), round(load["speculative"]["accept_length"], 2)) == (2.6, 2.01)
    assert round(value_or_none(around(at, "ngram", "generate").length), 2) == 2.37
    assert SG.meaning.kinds["sglang:spec_accept_length"] == "window gauge"


# ---- what its other answers say ----


def test_the_tokenizers_own_limit_is_not_the_servers(at):
    tokenized = said(at, "ngram/tokenize.json")
    assert tokenized["max_model_len"] == 8192
    bodies = {name: (at / "ngram" / name).read_bytes() for name in ("models.json", "server_info.json")}
    assert context_limit(bodies).tokens == 4096
    assert "longer than the model's context length (4096 tokens)" in said(at, "ngram/toolong.json")["message"]


def test_a_prompts_tokens_are_those_of_its_text_and_thirty_of_the_template(at):
    of_the_text = _count("/tokenize", said(at, "ngram/tokenize.json"))
    assert (of_the_text, stream(at, "sse.code.contusage").n_prompt_tokens) == (19, 19 + 30)


def test_the_architecture_stands_in_model_info_alone(at):
    bodies = {name: said(at, f"ngram/{name}.json") for name in ("models", "server_info")}
    assert names_side_by_side("SmolLM2-135M-Instruct", bodies)["architecture"] is None
    bodies["model_info"] = said(at, "ngram/model_info.json")
    assert names_side_by_side("SmolLM2-135M-Instruct", bodies)["architecture"] == "LlamaForCausalLM"


def stream(at: Path, name: str) -> StreamFacts:
    """A captured stream, read as the load generator reads it: one segment a line."""
    first, *lines = [json.loads(line) for line in (at / f"ngram/{name}.jsonl").read_text().splitlines()]
    assert "sent_ns" in first
    return read([line["data"].encode() for line in lines])


def test_verified_tokens_come_several_an_event_and_each_is_counted(at):
    facts = stream(at, "sse.code.contusage")
    grown = [facts.chunks[0].cum_tokens] + [b.cum_tokens - a.cum_tokens for a, b in pairwise(facts.chunks)]
    assert (facts.outcome, facts.n_completion_tokens, sum(grown)) == ("completed", 160, 160)
    assert (min(grown), max(grown), grown[0]) == (1, 12, 1)
    assert facts.usage["prompt_tokens_details"] == {"cached_tokens": 48}


def test_a_refusal_whose_body_never_came_is_an_http_error_all_the_same(at):
    facts = stream(at, "sse.meta400")
    assert (facts.outcome, facts.http_status, facts.http_complete) == ("http_error", 400, False)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("toolong", "The input (6031 tokens) is longer than the model's context length (4096 tokens)."),
        ("negative", "max_new_tokens must be at least 0, got -5."),
    ],
)
def test_a_refusal_keeps_its_kind_and_its_words(at, name, words):
    told = (at / f"ngram/{name}.json").read_bytes()
    head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(told)
    facts = read([head, told])
    assert (facts.outcome, facts.http_status) == ("http_error", 400)
    assert facts.error is not None
    assert (facts.error.kind, facts.error.message) == ("BadRequestError", words)


# ---- settings of the arms beside the baseline's, and their logs ----


def test_arms_that_name_their_settings_differ_in_what_they_vary_and_nothing_else(launches):
    records = {name: launch for name, (_, launch) in launches.items() if name != "badvocab"}
    assert unmatched("baseline", records) == ([], [])
    bare = {name: {**launch, "arm": {**launch["arm"], "varied": None}} for name, launch in records.items()}
    differ, _ = unmatched("baseline", bare)
    keys = {line.split(": ")[1] for line in differ}
    assert {key for key in keys if not key.startswith("speculative_")} == {"kv_cache_dtype"}


@pytest.mark.parametrize(
    ("key", "value"),
    [("max_running_requests", 2048), ("mem_fraction_static", 0.2), ("disable_overlap_schedule", True),
     ("cuda_graph_config.decode.bs", [1, 2]), ("chunked_prefill_size", 2048)],
)  # fmt: skip
def test_a_setting_that_moved_along_is_told(launches, key, value):
    arm = json.loads(json.dumps(launches["ngram"][1]))
    arm["resolved"][key] = value
    (told,), _ = unmatched("baseline", {"baseline": launches["baseline"][1], "ngram": arm})
    assert told.startswith(f"ngram: {key}: {value!r} against the baseline's ")


def test_the_failed_launch_has_all_that_a_reader_needs(launches):
    folder, launch = launches["badvocab"]
    assert verify(folder) == ()
    assert (launch["outcome"], launch["stage"], launch["exit_code"]) == ("failed", "draft", -9)
    assert "target vocab_size=49152 and draft vocab_size=49088" in launch["symptom"]
    assert launch["symptom"] in (folder / "engine.log").read_text()
    assert launch["reproduce"].startswith("python -m sglang.launch_server --model-path models/smollm2-135m ")
    assert launch["versions"]["sglang"] == "0.5.17"
    assert launch["draft"]["files_bytes"]["model.safetensors"] == 99037840
    assert launch["resolved"]["speculative_draft_model_path"] == "models/smollm2-135m-draft6-49088"
    _, why = unmatched("baseline", {"baseline": launches["baseline"][1], "badvocab": launch})
    assert why == ["badvocab: settings not compared: they come from other sources: ['/server_info'] against ['log']"]


def test_every_start_reached_its_stages_and_only_the_failed_one_has_an_error(launches):
    for name, (folder, launch) in launches.items():
        log = EngineLog(dialect=SGLANG)
        log.feed((folder / "engine.log").read_bytes())
        drafts = ["draft"] if launch["draft"] else []
        whole = ["weights", *drafts, "memory_pool", "graph_capture", "listening"]
        assert log.stages == (["weights", "draft"] if name == "badvocab" else whole), name
        assert [error.partition(":")[0] for error in log.errors] == (["ValueError"] if name == "badvocab" else []), name
        assert (launch["stage"], launch["outcome"]) == (
            ("draft", "failed") if name == "badvocab" else ("ready", "stopped")
        )


def test_what_each_cache_holds_is_kept_beside_the_settings_and_is_none_of_them(launches):
    held = {
        name: launch["resolved"]["resolved.outcomes"].get("max_total_num_tokens")
        for name, (_, launch) in launches.items()
    }
    assert held == {
        "baseline": 631668, "ngram": 563081, "badvocab": None, "fp8kv": 996180, "eagle3-random": 421329,
        "standalone-self": 188254, "permuted": 280858,
    }  # fmt: skip


# ---- whole runs ----


def test_answers_silent_of_their_cache_are_cold_where_the_counter_stood_still(at):
    for arm in ("baseline", "ngram", "standalone-self"):
        run = run_of(at, ARM + arm)
        assert [check.name for check in run.server.checks if check.state == "fail"] == []
        assert {row.request.usage["prompt_tokens_details"] for row in run.measured} == {None}
        assert (run.server.cold_proven, run.server.silent_zero, summarise(run)["cached_share"]) == (True, True, 0.0)
        assert [reason.code for reason in run.reasons] == ["model_revision_unknown", *["gpu_shared"] * 2]


def test_prompts_sent_again_without_a_reset_are_found_out(at):
    run = run_of(at, "repeats")
    (seen,) = {reason.seen for reason in run.reasons if reason.code == "passes_differ"}
    assert seen == (
        "prompt tokens from a cache: 39% when first sent, 99% when sent again (2); the same 12 prompts decode at 3.15 "
        "times the rate when sent again (2; 95 % interval over prompts [2.06, 4.84])"
    )
    assert sum(reason.code == "passes_differ" for reason in run.reasons) == 3  # latency, rate, acceptance


def test_the_longest_path_of_a_step_is_known_of_each_kind(at):
    limits = {}
    for arm in ("baseline", "ngram", "standalone-self"):
        run = run_of(at, ARM + arm)
        limits[arm] = identity.draft_limit(run.manifest, run.launch)
    assert limits == {"baseline": 0, "ngram": 11, "standalone-self": 3}


def compared(at: Path, base: str, arm: str) -> dict:
    report, _ = compare_all(load_pairs([run_at(at, base)], [run_at(at, arm)]), None, Asked())
    (entry,) = report["arms"]
    return entry


def test_memory_in_use_when_a_run_began_is_no_difference_of_hardware(at):
    used = {
        run_of(at, ARM + arm).manifest.hardware["gpus"][0]["memory_in_use_bytes"]
        for arm in ("baseline", "standalone-self")
    }
    assert len(used) == 2
    entry = compared(at, ARM + "baseline", ARM + "standalone-self")
    assert entry["refused"] is None
    assert round(entry["ratio"], 2) == 2.31


def test_a_cycles_cost_stands_on_the_counters_where_no_answer_tells_its_steps(at):
    cost = compared(at, ARM + "baseline", ARM + "standalone-self")["cycle_cost"]
    assert cost["n_launches"] == 1
    assert round(cost["tokens_per_step"], 3) == 3.639
    assert round(cost["t_base_s"], 5) == 0.00347
    assert round(cost["t_cycle_s"], 5) == 0.00545
    assert cost["by_domain"] == {}
    assert cost["coverage"].endswith("1 of 1 launches by the counters around them")


def test_cold_and_repeated_prompts_are_not_compared(at):
    entry = compared(at, ARM + "ngram", "repeats")
    assert "cached share of all: 69% against the baseline's 0%" in entry["refused"]
    assert "gpu" not in entry["refused"]


def test_the_servers_own_times_are_shown_as_means_where_no_answer_carries_them(at):
    text = "\n".join(one_run(summarise(run_of(at, ARM + "ngram"))))
    assert "TTFT_ms  mean 20.9 from sglang:time_to_first_token_seconds, 6 observations" in text
    assert "TPOT_ms  mean 5.25 from sglang:inter_token_latency_seconds, 261 observations" in text
    assert "engine: sglang 0.5.17," in text
