"""Export to OpenMetrics: read by a strict parser, backfilled by the real promtool, asked of the real Prometheus."""

import json
import math
import re
from pathlib import Path

import pytest
import recorded_runs as recorded
import run_factory as factory
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_server import ask, backfill, needs_prometheus, running_prometheus

from analysis.measures import measure
from analysis.openmetrics import command, export, runs_of
from analysis.openmetrics_text import SampleBook, _seconds
from evidence.errors import EvidenceError
from infra.wire.client_records import ended

SAMPLE = re.compile(r'([a-zA-Z_:][\w:]*)(\{(?:[\w]+="(?:[^"\\]|\\.)*",?)*\})? (\S+) (\S+)')


def exported(run: Path | list[Path], folder: Path) -> str:
    out = folder / "out.om"
    export(run if isinstance(run, list) else [run], out)
    return out.read_text()


def strictly_read(text: str) -> dict:
    """Instant by instant: the library's parser mixes up a histogram that comes at several instants."""
    lines = text.splitlines()
    instants = {line.rsplit(" ", 1)[1] for line in lines if not line.startswith("#")}
    heads = {}
    found = {}
    for at in sorted(instants, key=float):
        kept = [line for line in lines if (line.startswith("# ") and line != "# EOF") or line.endswith(f" {at}")]
        for family in text_string_to_metric_families("\n".join([*kept, "# EOF"]) + "\n"):
            heads[family.name] = family.type
            for sample in family.samples:
                found.setdefault((sample.name, tuple(sorted(sample.labels.items()))), []).append(
                    (float(sample.timestamp), sample.value)
                )
    return {"types": heads, "series": found}


@pytest.mark.parametrize("engine", sorted(recorded.BODIES))
def test_a_strict_parser_reads_the_export_of_every_engine(tmp_path, engine):
    text = exported(recorded.recorded_run(tmp_path / "runs", engine), tmp_path)
    assert text.endswith("# EOF\n")
    read = strictly_read(text)
    n_lines = sum(not line.startswith("#") for line in text.splitlines())
    assert sum(len(points) for points in read["series"].values()) == n_lines
    for _, labels in read["series"]:
        assert {"run_id", "arm"} <= dict(labels).keys()
    assert read["types"]["llm_client_ttft_seconds"] == "histogram"


def test_every_sample_of_every_whole_scrape_is_there_at_its_instant(tmp_path):
    run = recorded.recorded_run(tmp_path / "runs", "vllm")
    series = strictly_read(exported(run, tmp_path))["series"]
    drafts = next(v for (name, _), v in series.items() if name == "vllm:spec_decode_num_drafts_total")
    assert [value for _, value in drafts] == [0, 0, 0, 30, 30, 30, 50, 50, 50]
    assert [round(at - recorded.AT_S, 3) for at, _ in drafts] == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert any(name == "vllm:spec_decode_num_drafts_created" for name, _ in series)
    assert any(name == "vllm:iteration_tokens_total_bucket" for name, _ in series)  # a histogram named like a counter


def scraped(tmp_path, *bodies: str | None, **changes) -> str:
    found = [
        recorded.scrape(text, place * 1.0, run_id="run-x", url="http://h:1/metrics", **changes)
        for place, text in enumerate(bodies)
    ]
    return exported(recorded.recorded_run(tmp_path / "runs", "vllm", run_id="run-x", found=found), tmp_path)


def lines_of(text: str, name: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith((name + "{", name + " "))]


def test_values_that_are_no_counts_survive(tmp_path):
    body = (
        "# TYPE a gauge\na NaN\n# TYPE b gauge\nb +Inf\n# TYPE c counter\nc_total NaN\n# TYPE d gauge\nd 1.23457e+06\n"
    )
    text = scraped(tmp_path, body)
    strictly_read(text)
    assert [line.split(" ")[1] for line in lines_of(text, "a")] == ["NaN"]
    assert [line.split(" ")[1] for line in lines_of(text, "b")] == ["+Inf"]
    assert "# TYPE c_total unknown" in text  # a counter that is NaN is none; the sample stays
    assert [line.split(" ")[1] for line in lines_of(text, "d")] == ["1234570.0"]


def test_a_counter_by_type_that_is_none_by_name_keeps_its_name(tmp_path):
    text = scraped(tmp_path, "# TYPE n_max counter\nn_max 7\n")
    assert "# TYPE n_max unknown" in text
    assert len(lines_of(text, "n_max")) == 1


@pytest.mark.parametrize("bucket", ['{le="1"}', '{le="x"}', ""])
def test_a_histogram_that_is_none_loses_its_type_and_no_sample(tmp_path, bucket):
    more = 'h_bucket{le="+Inf"} 2\n' if bucket == '{le="x"}' else ""
    text = scraped(tmp_path, f"# TYPE h histogram\nh_bucket{bucket} 2\n{more}h_count 2\nh_sum 3\n")
    strictly_read(text)
    assert "# TYPE h_count unknown" in text and len(lines_of(text, "h_sum")) == 1


def test_families_whose_names_collide_are_told_apart(tmp_path):
    text = scraped(tmp_path, "# TYPE a gauge\na 1\n# TYPE a_total counter\na_total 2\n")
    read = strictly_read(text)
    assert {name for name, _ in read["series"]} >= {"a", "a_total"}


def test_a_servers_own_labels_by_our_names_are_kept_beside_ours(tmp_path):
    text = scraped(tmp_path, '# TYPE a gauge\na{run_id="theirs",job="x",odd="q\\"uo\\\\te\\n"} 1\n')
    (line,) = lines_of(text, "a")
    assert 'exported_run_id="theirs"' in line and 'exported_job="x"' in line and 'run_id="run-x"' in line
    assert 'odd="q\\"uo\\\\te\\n"' in line
    strictly_read(text)


def test_two_samples_of_one_instant_are_one_and_counted(tmp_path):
    found = [
        recorded.scrape(f"# TYPE a gauge\na {n}\n", 1.0, run_id="run-x", url="http://h:1/metrics") for n in (1, 2, 2)
    ]
    run = recorded.recorded_run(tmp_path / "runs", "vllm", run_id="run-x", found=found)
    done = export([run], tmp_path / "out.om")
    assert done.written.n_same_instant >= 2
    (line,) = lines_of((tmp_path / "out.om").read_text(), "a")
    assert line.split(" ")[1] == "2.0"  # the later one


def test_several_servers_of_one_run_keep_their_own_series(tmp_path):
    found = [
        recorded.scrape(f"# TYPE a gauge\na {n}\n", 1.0, run_id="run-x", url=f"http://h:{n}/metrics") for n in (1, 2)
    ]
    run = recorded.recorded_run(tmp_path / "runs", "vllm", run_id="run-x", found=found)
    lines = lines_of(exported(run, tmp_path), "a")
    assert {'instance="h:1"' in line for line in lines} == {True, False} and len(lines) == 2


def test_scrapes_that_cannot_be_read_are_left_out_by_reason_and_show_as_down(tmp_path):
    whole = "# TYPE a gauge\na 1\n"
    found = [
        recorded.scrape(whole, 0.0, run_id="run-x", url="http://h:1/metrics"),
        recorded.scrape("# TYPE a gauge\na 1", 1.0, run_id="run-x", url="http://h:1/metrics"),
        recorded.scrape(None, 2.0, run_id="run-x", url="http://h:1/metrics", error="timed out after 5 s"),
        recorded.scrape(whole, 3.0, run_id="run-x", url="http://h:1/metrics", complete=False),
    ]
    run = recorded.recorded_run(tmp_path / "runs", "vllm", run_id="run-x", found=found)
    done = export([run], tmp_path / "out.om")
    assert done.n_scrapes == 1 and done.left_out.total() == 3
    assert set(done.left_out) == {
        "cut: the last line has no newline", "timed out after 5 s", "nothing shows that the body is whole"
    }  # fmt: skip
    assert [line.split(" ")[1] for line in lines_of((tmp_path / "out.om").read_text(), "up")] == ["1.0"] + ["0.0"] * 3


def test_an_unsealed_run_is_refused_and_a_file_within_evidence_too(tmp_path):
    with pytest.raises(EvidenceError, match="recover"):
        export([recorded.recorded_run(tmp_path / "runs", "vllm", seal=False)], tmp_path / "out.om")
    run = recorded.recorded_run(tmp_path / "other", "vllm")
    with pytest.raises(EvidenceError, match="folder of evidence"):
        export([run], run / "server" / "out.om")
    assert not (run / "server").exists()


def test_a_request_that_was_never_sent_has_the_instant_it_started_at(tmp_path):
    run = factory.make_run(
        tmp_path, [factory.request(outcome="connect_refused", chunks=(), finish_reason=None, sent_at_unix_s=None)]
    )
    instants = [float(line.rsplit(" ", 1)[1]) for line in exported(run, tmp_path).splitlines() if line[0] != "#"]
    assert min(instants) > recorded.AT_S - 10  # not 1970: promtool would make a block for every two hours since


def test_the_clients_counters_are_those_of_the_records(tmp_path):
    series = strictly_read(exported(recorded.recorded_run(tmp_path / "runs", "sglang"), tmp_path))["series"]
    ends = {
        (dict(labels)["domain"], dict(labels)["outcome"]): points[-1][1]
        for (name, labels), points in series.items()
        if name == "llm_client_requests_total"
    }
    assert ends[("warmup", "completed")] == ends[("code", "completed")] == ends[("prose", "truncated")] == 1
    flight = next(points for (name, _), points in series.items() if name == "llm_client_in_flight")
    assert flight[0][1] == flight[-1][1] == 0 and max(value for _, value in flight) == 1
    assert any(name == "llm_client_lag_seconds" for name, _ in series)


MARKS = st.lists(
    st.tuples(st.floats(0.001, 5), st.integers(0, 6), st.one_of(st.none(), st.integers(0, 30)), st.integers(0, 9)),
    max_size=8,
)


@given(MARKS, st.one_of(st.none(), st.integers(0, 40)))
def test_time_per_token_is_the_one_the_analysis_derives(marks, n_tokens):
    segments = sorted(mark[1] for mark in marks)  # as they come: later chunks are of later segments
    chunks = tuple(
        (at, segment, *rest)
        for (at, _, *rest), segment in zip(sorted(marks, key=lambda mark: mark[0]), segments, strict=True)
    )
    one = factory.request(chunks=chunks, n_completion_tokens=n_tokens)
    assert ended(one).tpot_s == measure(one, max_draft_tokens=None).tpot_s.value


@given(st.integers(0, 4_000_000_000_000))
def test_every_millisecond_comes_back_from_its_digits_as_prometheus_cuts_it(ms):
    text = _seconds(ms)
    assert int(float(text) * 1000) == ms  # a double in both languages
    assert text.startswith(f"{ms // 1000}.{ms % 1000:03d}")


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(allow_nan=True)), max_size=30), st.text(max_size=8))
def test_any_samples_in_any_order_make_text_that_reads_back(points, label):
    label = label.encode("utf-8", "replace").decode()
    book = SampleBook()
    for at, value in points:
        book.add(
            family="g", kind="gauge", name="g", labels={"l": label, "k": "x"}, at_unix_s=at / 10, value=value, words=""
        )
    lines: list[str] = []
    book.write(type("Out", (), {"write": lambda _, text: lines.append(text)})())
    wanted = dict(points)
    text = "".join(lines)
    found = [s for family in text_string_to_metric_families(text) for s in family.samples]
    assert [round(float(s.timestamp) * 10) for s in found] == sorted(wanted)
    assert all(s.labels == ({"l": label, "k": "x"} if label else {"k": "x"}) for s in found)
    for sample, at in zip(found, sorted(wanted), strict=True):
        assert sample.value == wanted[at] or (math.isnan(sample.value) and math.isnan(wanted[at]))


def test_the_command_says_what_it_wrote_and_takes_a_study(tmp_path, monkeypatch):
    study = tmp_path / "study-1"
    for engine in ("vllm", "sglang"):
        recorded.recorded_run(study / "runs", engine)
    (study / "study.json").write_text("{}")
    assert len(runs_of(study)) == 2
    monkeypatch.chdir(tmp_path)
    options = type("Options", (), {"run": study, "out": None})()
    code, report, lines = command(options)
    assert code == 0 and (tmp_path / "study-1.om").is_file()
    assert report["run_ids"] == ["run-sglang", "run-vllm"] and report["n_samples"] > 1000
    assert any("promtool tsdb create-blocks-from openmetrics" in line for line in lines)
    json.dumps(report, allow_nan=False)


@needs_prometheus
def test_promtool_backfills_it_and_prometheus_gives_back_every_sample(tmp_path):
    runs = [recorded.recorded_run(tmp_path / "runs", engine) for engine in recorded.BODIES]
    export(runs, tmp_path / "runs.om")
    backfill(tmp_path / "runs.om", tmp_path / "data")
    lines = [SAMPLE.fullmatch(line) for line in (tmp_path / "runs.om").read_text().splitlines() if line[0] != "#"]
    assert all(lines)
    wanted: dict[str, int] = {}
    for match in lines:
        wanted[match[1]] = wanted.get(match[1], 0) + 1
    with running_prometheus(tmp_path / "data") as url:
        for name, n in wanted.items():
            found = ask(url, "query", query=f"{name}[1h]", time=recorded.AT_S + 1800)
            assert sum(len(one["values"]) for one in found) == n, name
        (drafts,) = ask(
            url, "query", query='vllm:spec_decode_num_drafts_total{run_id="run-vllm"}[1h]', time=recorded.AT_S + 1800
        )
        assert drafts["values"] == [
            [recorded.AT_S + n, str(v)] for n, v in enumerate([0, 0, 0, 30, 30, 30, 50, 50, 50])
        ]
