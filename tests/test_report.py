"""``report RUN|STUDY``: the page's numbers are the commands' numbers, and each leads back to its raw record."""

import argparse
import base64
import hashlib
import json
import math
import re
from collections.abc import Sequence
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from analysis import compare, report, report_rows
from analysis.__main__ import main
from analysis.compare_tables import percent
from analysis.errors import AnalysisError
from analysis.loading import load_run
from analysis.report_decision import Decision, control_doubt, decide, ratio_text
from analysis.report_energy import Energy, energy
from analysis.report_gather import view_run
from analysis.report_html import Markup, json_block, prose, tag, text
from analysis.report_page import ASSETS
from analysis.report_requests import by_difference, keep, thinned
from analysis.report_rows import column
from analysis.report_series import lanes
from evidence.errors import EvidenceError
from evidence.folder import RunWriter
from evidence.gpu_records import GpuReading, GpuSample
from evidence.records import Health, Request, Started
from tests.recorded_runs import recorded_run
from tests.run_factory import UNIX_S, llamacpp_scrape, make_run, manifest, numbered, planned, request
from tests.study_factory import At, make_study, steady

HOSTILE = (
    '</script><img src=x onerror="window.hacked=1"><!-- \u2028 \u202egnp.exe\u2066 \x07'
    " &amp; ]]> '\" \\u003c \U0001f600 javascript:alert(1)"
)
TIMINGS = {"timings": {"predicted_n": 6, "predicted_ms": 200.0, "prompt_ms": 50.0, "cache_n": 0}}
VOID = {"meta", "input", "br", "hr"}


class Page(HTMLParser):
    """The page as a tree would see it: ids, links, exact numbers, texts by element, scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.html = html
        self.ids: list[str] = []
        self.links: list[str] = []
        self.numbers: list[tuple[str, str, str]] = []  # path in the command's JSON, exact value, as printed
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        self.numbers = [one for one in self.numbers if one[0] != "None"]
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        if "id" in found:
            self.ids.append(str(found["id"]))
        if tag == "a":
            self.links.append(str(found["href"]))
        if tag == "data":
            self.numbers.append((str(found.get("data-path")), str(found["value"]), ""))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in self.raw:
            self.raw[self._open[-1]].append(data)
            return
        if self._open and self._open[-1] == "data" and self.numbers:
            path, value, shown = self.numbers[-1]
            self.numbers[-1] = (path, value, shown + data)
        self.words.append(data)

    @cached_property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.raw["script"][0])
        return found

    @cached_property
    def requests(self) -> list[dict[str, Any]]:
        """The requests as the page's script reads them out of their columns."""
        held = self.data["requests"]
        return [
            {name: stored(held["columns"][place], number) for place, name in enumerate(held["fields"])}
            for number in range(held["n"])
        ]

    @cached_property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


def stored(column: Any, number: int) -> Any:
    return column[number] if isinstance(column, list) else column["of"][column["at"][number] if "at" in column else 0]


def made(path: Path, out: Path) -> tuple[dict[str, Any], Page]:
    parser = argparse.ArgumentParser()
    report.add_arguments(parser)
    code, said, lines = report.command(parser.parse_args([str(path), "--out", str(out)]))
    assert code == 0
    assert lines[-1] == str(out)
    return said, Page(out.read_text(encoding="utf-8"))


def rows(**changes: Any) -> list[Request]:
    six = tuple((0.1 + 0.02 * n, n, n + 1, 3) for n in range(6))
    warm = request(phase="warmup", domain="warmup", prompt_id="warmup_01", chunks=six, server_fields=TIMINGS)
    found = []
    for place, domain in enumerate(("code", "prose", "json", "code", "prose", "json")):
        marks = tuple((0.1 + 0.01 * place + 0.02 * n * (1 + place / 10), n, n + 1, 3) for n in range(6))
        found.append(
            request(
                **(
                    {"prompt_id": f"{domain}_{place:02d}", "domain": domain, "chunks": marks, "server_fields": TIMINGS,
                     "output_text": f"answer number {place}"} | changes
                )
            )
        )  # fmt: skip
    return [warm, *found]


def at(value: Any, path: str) -> Any:
    for part in path.split("."):
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


def asked(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> dict[str, Any]:
    capsys.readouterr()
    main([*map(str, argv), "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def compared(path: Path) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    compare.add_arguments(parser)
    return json.loads(json.dumps(compare.command(parser.parse_args([str(path)]))[1]))  # type: ignore[no-any-return]  # JSON


def test_every_number_of_a_run_page_is_that_of_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scrapes = [llamacpp_scrape("before", -1.0), llamacpp_scrape("after", 90.0, prompt=120, generated=36)]
    path = make_run(tmp_path / "runs", rows(), scrapes=scrapes)
    said, page = made(path, tmp_path / "report.html")
    summary = asked(capsys, "summary", path)
    assert page.data["summary"] == summary
    assert said["verdict"] == summary["verdict"]
    assert len(page.numbers) > 30
    for where, value, shown in page.numbers:
        exact = at({"summary": summary}, where)
        assert repr(exact) == value, where
        printed = 1000 * exact if re.search(r"(?<!per)_s\.median", where) else exact
        assert float(shown) == pytest.approx(printed, rel=0.001, abs=0.006), where


def test_every_number_of_a_study_page_is_that_of_compare(tmp_path: Path) -> None:
    path = make_study(tmp_path / "runs", arms=("base", "fast", "slow"))
    _, page = made(path, tmp_path / "report.html")
    found = compared(path)
    assert page.data["compare"] == found
    paths = {where for where, _, _ in page.numbers}
    assert {"compare.arms.0.ratio", "compare.arms.1.interval.0", "compare.control.ratio"} <= paths
    assert "compare.arms.0.by_domain.json.ratio" in paths
    for where, value, _ in page.numbers:
        if where.startswith("compare."):
            assert repr(at({"compare": found}, where)) == value, where


def test_every_link_within_a_page_has_its_target_and_no_id_stands_twice(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs", rows())
    study = make_study(
        tmp_path / "studies",
        arms=("base", "fast", "bad"),
        failed={("bad", n): ("draft", "no such file") for n in range(4)},
    )
    for path in (run, study):
        _, page = made(path, tmp_path / "report.html")
        assert len(page.ids) == len(set(page.ids))
        missing = {link for link in page.links if link.startswith("#") and unquote(link[1:]) not in page.ids}
        assert missing == set()


def test_every_link_out_of_a_page_is_a_file_or_folder_that_is_there(tmp_path: Path) -> None:
    study = make_study(
        tmp_path / "a place #1 ü", arms=("base", "fast", "bad"), failed={("bad", 0): ("draft", "no such file")}
    )
    (tmp_path / "out").mkdir()
    _, page = made(study, tmp_path / "out" / "report.html")
    outside = [link for link in page.links if not link.startswith("#")]
    assert len(outside) > 30
    for link in outside:
        assert (tmp_path / "out" / unquote(link)).exists(), link
    assert any("launches/launch-002" in link for link in outside)  # the failed arm's own folder


def test_a_median_leads_to_the_request_whose_raw_record_has_that_value(tmp_path: Path) -> None:
    path = make_run(tmp_path / "runs", rows())
    _, page = made(path, tmp_path / "report.html")
    cells = re.findall(
        r'<a href="#r(\d+)" title="(\w+)"><data value="([^"]+)" data-path="(summary[^"]+ttft_s\.median)">', page.html
    )
    assert len(cells) == 4
    for number, plan_id, value, _ in cells:
        row = page.requests[int(number)]
        file = page.data["requests"]["files"][row["file"]]
        record = json.loads((path / file).read_text().splitlines()[row["line"] - 1])
        assert record["plan_id"] == row["plan"] == plan_id
        assert repr(record["first_token_after_s"]) == value
        plan = json.loads((path / "plan.jsonl").read_text().splitlines()[row["plan_line"] - 1])
        assert plan["plan_id"] == plan_id


def test_the_pairs_of_the_page_give_the_ratio_of_the_comparison(tmp_path: Path) -> None:
    def noisy(one: At) -> float:
        return steady(one) * (1 + 0.03 * ((one.place * 5 + one.pair * 7 + len(one.arm)) % 4))

    path = make_study(tmp_path / "runs", arms=("base", "fast"), rate=noisy)
    _, page = made(path, tmp_path / "report.html")
    requests = page.requests
    pairs = next(one for one in page.data["pairs"] if one["arm"] == "fast")["pairs"]
    logs = [math.log(requests[other]["rate"] / requests[base]["rate"]) for _, base, other in pairs]
    assert math.exp(sum(logs) / len(logs)) == pytest.approx(compared(path)["arms"][0]["ratio"], rel=1e-12)


def test_what_a_model_says_stays_text(tmp_path: Path) -> None:
    hostile = rows(output_text=HOSTILE, finish_reason=HOSTILE, model_served=HOSTILE)
    path = make_run(tmp_path / "runs", hostile, texts={"code_00": HOSTILE}, label=HOSTILE, note=HOSTILE, arm=None)
    _, page = made(path, tmp_path / "report.html")
    assert [tag for tag, _ in page.tags if tag in ("img", "iframe", "object", "embed", "link", "base", "form")] == []
    assert page.html.count("</script>") == 2
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert re.search("[\u2028\u2029\u202a-\u202e\u2066-\u2069\x07]", page.html) is None
    assert [HOSTILE, len(HOSTILE)] in page.data["requests"]["outputs"]
    assert "U+202E" in page.text
    assert '<img src=x onerror="window.hacked=1">' in page.text


def test_the_policy_lets_the_one_script_and_the_one_style_run_and_nothing_else(tmp_path: Path) -> None:
    _, page = made(make_run(tmp_path / "runs", rows()), tmp_path / "report.html")
    policy = next(
        str(a["content"]) for t, a in page.tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    )

    def digest(said: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(said.encode()).digest()).decode() + "'"

    parts = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert parts["default-src"] == "'none'"
    assert parts["script-src"] == digest(page.raw["script"][1])
    assert parts["style-src"] == digest(page.raw["style"][0])
    assert not any("style" in attributes or "src" in attributes for _, attributes in page.tags)
    assert page.tags.index(("meta", {"http-equiv": "Content-Security-Policy", "content": policy})) < 5
    assert re.findall(r"(?:https?:)?//[a-z]", page.raw["script"][1]) == ["http://w"]  # the name space of SVG
    assert "url(" not in page.raw["style"][0]
    assert "@import" not in page.raw["style"][0]


def test_a_command_in_a_sentence_of_ours_is_shown_as_code_and_its_backticks_are_not() -> None:
    assert prose("see `a <b>` and `c`.") == "see <code>a &lt;b&gt;</code> and <code>c</code>."
    assert prose("one ` alone, ```three```, and none") == "one ` alone, ```three```, and none"
    assert prose("") == ""


def test_no_sentence_of_a_page_shows_a_backtick_and_what_a_model_says_keeps_its_own(tmp_path: Path) -> None:
    path = make_run(tmp_path / "runs", rows(output_text="call `f(x)` first"))
    (path / "seal.json").unlink()
    _, page = made(path, tmp_path / "report.html")
    assert "`" not in page.text.replace("`f(x)`", "")
    assert "<code>python -m study run</code>" in page.html
    assert "<code>python -m analysis recover RUN</code>" in page.html
    assert any("`f(x)`" in block for block in page.raw["script"])


def test_the_script_never_turns_text_into_markup_or_code() -> None:
    for file in sorted(ASSETS.glob("*.js")):
        said = file.read_text(encoding="utf-8")
        banned = r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|setTimeout|fetch\(|XMLHttp"
        assert re.findall(banned, said) == [], file.name
        assert "</script" not in said


def test_steering_characters_are_shown_and_plain_text_is_escaped() -> None:
    assert text("a<b>&\u202e") == 'a&lt;b&gt;&amp;<span class="ctl">U+202E</span>'
    assert (
        tag("td", "<b>", Markup("<i></i>"), title='"\u2066')
        == '<td title="&quot;\u27e8U+2066\u27e9">&lt;b&gt;<i></i></td>'
    )
    half = json_block(["\ud800 \u2028 </script>", "zürich \u4e2d"])
    assert half == '["\\ud800 \\u2028 \\u003c/script\\u003e","zürich \u4e2d"]'
    assert json.loads(half) == ["\ud800 \u2028 </script>", "zürich \u4e2d"]
    with pytest.raises(ValueError, match="Out of range"):
        json_block(float("nan"))


def test_a_thousand_requests_of_long_answers_stay_under_5_mb_and_what_is_cut_is_said(tmp_path: Path) -> None:
    marks = tuple((0.1 + 0.01 * n, n, n + 1, 40) for n in range(64))
    long = [
        request(
            chunks=marks,
            prompt_id=f"code_{n:04d}",
            output_text=f'{n:04d} <tag> "quoted" & more\n' * 90,
            server_fields=TIMINGS,
        )
        for n in range(1000)
    ]
    path = make_run(tmp_path / "runs", long, texts={f"code_{n:04d}": f"{n} is asked. " * 80 for n in range(1000)})
    said, page = made(path, tmp_path / "report.html")
    assert said["n_bytes"] == (tmp_path / "report.html").stat().st_size < 5_000_000
    assert said["n_requests"] == 1000
    assert sum(1 for name in page.ids if re.fullmatch(r"r\d+", name)) == 1000
    cut = len(page.data["requests"]["outputs"][0][0])
    assert 500 < cut < page.data["requests"]["outputs"][0][1]
    assert f"Answers are cut after {cut} characters in the page" in page.text
    held = sum(len(row["marks"]) for row in page.requests)
    assert f"The page holds {held} of 64000 chunk marks" in page.text


def test_a_study_of_a_thousand_requests_with_as_many_different_answers_stays_under_5_mb(tmp_path: Path) -> None:
    def own(one: At) -> str:
        return f"{one.arm} {one.role} {one.pair} {one.prompt} said at length\n" * 2

    prompts = [f"{domain}_{n:02d}" for domain in ("code", "json", "prose") for n in range(30)]
    path = make_study(tmp_path / "runs", launches=4, control=3, prompts=prompts, text=own)
    said, page = made(path, tmp_path / "report.html")
    assert said["n_requests"] == 990
    assert said["n_bytes"] < 5_000_000
    differences = [a for _, a in page.tags if "data-diff" in a]
    assert len(differences) == 2 * 150  # of the arm and of the control, as many as the page shows
    assert "Differences (360, the first 150 shown)" in page.text


def test_a_study_whose_record_was_changed_is_refused_and_says_so(tmp_path: Path) -> None:
    path = make_study(tmp_path / "runs")
    record = path / "study.json"
    record.write_text(record.read_text().replace('"seed":1', '"seed":2'))
    said, page = made(path, tmp_path / "report.html")
    assert said["verdict"] == "INVALID"
    assert "No decision: the comparison was refused." in page.text
    assert "hash_mismatch" in page.text


def test_texts_are_kept_once_and_cut_to_one_length_only_where_they_must_be() -> None:
    whole = keep(["same", "same", "other"], 100)
    assert (whole.texts, whole.cut, whole.place("other")) == ((("same", 4), ("other", 5)), None, 1)
    tight = keep(["a" * 50, "b" * 10], 34)
    assert tight.cut == 20  # two texts with their quotes in 34 bytes: 20 + 2 and 10 + 2
    assert tight.texts == (("a" * 20, 50), ("b" * 10, 10))


def test_thinned_marks_keep_the_ends_and_the_longest_gap() -> None:
    marks = [(0.01 * n + (5.0 if n >= 700 else 0.0), n, n + 1, 2) for n in range(1000)]
    kept = thinned(marks, 12)
    assert len(kept) <= 14
    assert kept[0] == [0.0, 1, 2]
    assert kept[-1] == [14.99, 1000, 2000]
    assert [6.99, 700, 1400] in kept
    assert [12.0, 701, 1402] in kept
    assert by_difference([[0.01, 1, 3], [0.01003, 4, 9], [0.5, None, 9]]) == [[1000, 1, 3], [3, 3, 6], [48997, None, 0]]
    assert thinned(marks[:5], 12) == [[round(a, 5), t, 2 * (n + 1)] for n, (a, _, t, _) in enumerate(marks[:5])]


def test_the_same_evidence_gives_the_same_bytes(tmp_path: Path) -> None:
    path = make_run(tmp_path / "runs", rows())
    first, _ = made(path, tmp_path / "report.html")
    second, _ = made(path, tmp_path / "report.html")
    assert first["sha256"] == second["sha256"]


def test_a_report_is_never_written_into_evidence_nor_over_a_file_that_is_none(tmp_path: Path) -> None:
    path = make_run(tmp_path / "runs", rows())
    study = make_study(tmp_path / "studies", launches=2)
    for place in (
        path / "report.html",
        path / "server" / "report.html",
        study / "report.html",
        study / "runs" / "report.html",
    ):
        place.parent.mkdir(exist_ok=True)
        with pytest.raises(AnalysisError, match="never written there"):
            made(path, place)
        assert not place.exists()
    mine = tmp_path / "notes.html"
    mine.write_text("<p>mine</p>")
    with pytest.raises(AnalysisError, match="no report of ours"):
        made(path, mine)
    assert mine.read_text() == "<p>mine</p>"
    with pytest.raises(EvidenceError, match="cannot be written") as refused:
        made(path, tmp_path / "nowhere" / "report.html")
    assert refused.value.exit_code == 3


def test_a_run_that_was_killed_still_has_a_page_that_says_so(tmp_path: Path) -> None:
    path = make_run(tmp_path / "runs", rows(), never_ended=2, never_started=1, seal=False)
    said, page = made(path, tmp_path / "report.html")
    assert said["verdict"] == "INVALID"
    assert "no: not a result" in page.text
    assert "let the run finish its plan" in page.text


def test_a_run_without_a_completed_request_has_a_page_without_a_number(tmp_path: Path) -> None:
    never = dict.fromkeys(("sent_at_unix_s", "sent_at_monotonic_s", "end_after_s", "connection", "http_status"))
    nothing: dict[str, Any] = never | dict.fromkeys(
        ("headers_after_s", "stamp_source", "finish_reason", "n_completion_tokens")
    )
    nothing |= {"chunks": (), "outcome": "connect_refused", "output_text": ""}
    path = make_run(tmp_path / "runs", rows(**nothing))
    _, page = made(path, tmp_path / "report.html")
    assert not any(where.endswith("median") for where, _, _ in page.numbers)
    assert "no request in this group completed" in page.text


def test_rates_with_an_unknown_first_chunk_stand_as_intervals(tmp_path: Path) -> None:
    uncounted = tuple((0.1 + 0.02 * n, n, None, 3) for n in range(6))
    path = make_run(tmp_path / "runs", rows(chunks=uncounted, n_completion_tokens=6))
    _, page = made(path, tmp_path / "report.html")
    row = page.requests[1]
    assert row["rate"] is None
    assert row["rate_bounds"] == pytest.approx([50.0, 50.0])  # without speculation a chunk holds one token
    assert "their rates are intervals" in page.text


def test_client_and_server_stand_on_one_time_axis(tmp_path: Path) -> None:
    run = view_run(load_run(recorded_run(tmp_path, "vllm")))
    found = {lane["name"]: lane for lane in lanes(run)}
    flight = found["in flight"]["series"]
    assert [one["name"].split(":")[0] for one in flight] == ["client", "server"]
    assert flight[0]["t"][:2] == [-2.0, -1.65]  # the warm-up request: two seconds before the first measured one
    assert flight[0]["v"][:2] == [1, 0]
    first_scrape = run.contents.scrapes[0].record
    middle = (first_scrape.send_unix_s + first_scrape.receive_unix_s) / 2 - run.t0_unix_s
    assert flight[1]["t"][0] == pytest.approx(middle, abs=1e-3)
    # worker clock 51.0 is UNIX_S + 1, and the first measured request was sent at UNIX_S + 2
    assert found["client lag"]["series"][0]["t"][0] == pytest.approx(-1.0, abs=1e-3)
    assert found["client lag"]["series"][0]["v"][0] == 3


def test_the_longest_gap_of_a_slice_leads_to_its_request(tmp_path: Path) -> None:
    many = tuple((0.1 + 0.001 * n + (0.5 if n > 250 else 0.0), n, n + 1, 1) for n in range(600))
    run = view_run(load_run(make_run(tmp_path, [*rows(), request(chunks=many, output_text="x" * 600)])))
    gaps = next(lane for lane in lanes(run) if lane["name"] == "chunk gaps")["series"][0]
    assert len(gaps["t"]) <= 400
    worst = gaps["v"].index(max(gaps["v"]))
    assert gaps["v"][worst] == pytest.approx(501, abs=0.01)
    assert gaps["r"][worst] == 7


def sample(at_s: float, *gpus: dict[str, Any], missing: str | None = None) -> GpuSample:
    return GpuSample(
        run_id="run-test",
        source="nvml",
        host=None,
        at_unix_s=UNIX_S + at_s,
        at_monotonic_s=None,
        took_s=0.0,
        interval_s=1.0,
        gpus=tuple(GpuReading(**one) for one in gpus),
        missing=missing,
    )


def test_energy_a_token_is_mean_power_times_the_window_over_its_tokens() -> None:
    own = [request(sent_at_unix_s=UNIX_S + 5 * n, end_after_s=5.0, n_completion_tokens=50) for n in range(2)]
    counter = [sample(t, {"index": 0, "energy_j": 5000.0 + 300 * t, "power_w": 1.0}) for t in range(-5, 16)]
    found = energy(counter, own)
    assert isinstance(found, Energy)
    assert (found.window_s, found.n_tokens, found.by_counter) == (10.0, 100, True)
    assert found.joules_per_token == pytest.approx(30.0)
    two = [sample(t, {"index": 0, "power_w": 100.0 + 10 * t}, {"index": 1, "power_w": 50.0}) for t in range(11)]
    both = energy(two, own)
    assert isinstance(both, Energy)
    assert (both.n_gpus, both.by_counter) == (2, False)
    assert both.mean_power_w == pytest.approx(150.0 + 50.0)


def test_energy_is_not_shown_where_the_samples_do_not_cover_the_window() -> None:
    own = [request(sent_at_unix_s=UNIX_S + 50 * n, end_after_s=50.0, n_completion_tokens=50) for n in range(2)]
    power = {"index": 0, "power_w": 100.0}
    assert "do not cover" in str(energy([sample(t, power) for t in range(20)], own))
    assert energy([], own) == "no GPU was sampled"
    assert "no NVML" in str(energy([sample(0, missing="no NVML library")], own))
    whole = [sample(t, power) for t in range(101)]
    assert "neither its power nor its energy" in str(energy([sample(t, {"index": 0}) for t in range(101)], own))
    uncounted = [*own[:1], own[1].model_copy(update={"n_completion_tokens": None})]
    assert "no token count" in str(energy(whole, uncounted))


def with_gpu(root: Path, samples: Sequence[GpuSample]) -> Path:
    """A sealed run, a request in five seconds, with GPU samples and one health line."""
    own = numbered(rows(end_after_s=4.5))
    plan = [planned(one, place, text=f"Answer {one.prompt_id}.") for place, one in enumerate(own)]
    writer = RunWriter.create(root, "run-test", manifest(plan), plan)
    worker = writer.worker(0)
    for one in own:
        worker.started(
            Started(
                run_id="run-test",
                worker=0,
                sequence=one.sequence,
                plan_id=one.plan_id,
                started_at_unix_s=one.sent_at_unix_s or 0.0,
                started_at_monotonic_s=one.sent_at_monotonic_s or 0.0,
            )
        )
        worker.ended(one)
    worker.health(
        Health(
            at_monotonic_s=60.0,
            interval_s=1.0,
            lag_p50_s=0.001,
            lag_max_s=0.004,
            cpu_ratio=0.1,
            gc_pauses=0,
            gc_pause_max_s=0.0,
            in_flight=1,
        )
    )
    for sampled in samples:
        writer.gpu(sampled)
    writer.seal()
    return writer.path


def test_power_is_a_lane_and_energy_a_section_where_gpus_were_sampled(tmp_path: Path) -> None:
    path = with_gpu(tmp_path / "runs", [sample(t, {"index": 0, "power_w": 200.0}) for t in range(40)])
    _, page = made(path, tmp_path / "report.html")
    assert "energy" in page.ids
    assert {"GPU power", "client lag", "client CPU"} <= {lane["name"] for lane in page.data["runs"][0]["lanes"]}
    value = 200.0 * 29.5 / 36
    assert f"{value:.3f}" in page.text
    _, without = made(make_run(tmp_path / "other", rows()), tmp_path / "report.html")
    assert "energy" not in without.ids
    assert "Energy a token is not shown: no GPU was sampled." in without.text


def test_levels_have_their_table_and_chart(tmp_path: Path) -> None:
    own = [
        one.model_copy(update={"level": level, "repeat": n})
        for n, level in enumerate(("1", "2", "8"))
        for one in rows()[1:]
    ]
    _, page = made(make_run(tmp_path / "runs", own), tmp_path / "report.html")
    assert "sweep" in page.ids
    assert {tuple(one["levels"]) for one in page.data["levels"]} == {("1", "2", "8")}
    assert any(attributes.get("data-chart") == "levels" for _, attributes in page.tags)


def words(decision: Decision) -> dict[str, str]:
    return {one.domain: one.word for one in decision.domains}


def study_of(tmp_path: Path, factor: dict[str, float], **changes: Any) -> dict[str, Any]:
    """A comparison of the arm ``fast`` with these factors by domain; on code it is faster and slower by turns."""

    def rate(one: At) -> float:
        own = 50.0 * (1 + 0.001 * ((one.pair * 7 + one.place * (3 if one.arm == "fast" else 1)) % 5))
        if one.arm != "fast":
            return own
        domain = one.prompt.split("_")[0]
        return own * (0.85 + 0.1 * ((one.place * 3 + one.pair) % 4) if domain == "code" else factor[domain])

    prompts = [f"{domain}_{n:02d}" for domain in ("code", "json", "prose") for n in range(4)]
    return compared(make_study(tmp_path, rate=rate, prompts=prompts, **changes))


def test_the_decision_says_by_domain_what_to_switch(tmp_path: Path) -> None:
    (found,) = decide(study_of(tmp_path, {"json": 1.4, "prose": 0.8}))
    assert found.sentence == "on for JSON, off for prose, not resolved for code"
    assert words(found) == {"code": "not resolved", "json": "on", "prose": "off"}
    on = next(one for one in found.domains if one.word == "on")
    assert on.rests_on.startswith("decode rate x1.4")
    assert "4 paired launches, 4 prompts" in on.rests_on


def test_one_launch_never_decides(tmp_path: Path) -> None:
    (found,) = decide(study_of(tmp_path, {"json": 1.4, "prose": 0.8}, launches=1))
    assert found.sentence == "no decision: one paired launch: how much launches differ from each other was not seen"
    assert set(words(found).values()) == {"no decision"}


def test_a_single_run_is_no_decision_and_no_claim_about_the_system(tmp_path: Path) -> None:
    _, page = made(make_run(tmp_path / "runs", rows()), tmp_path / "report.html")
    assert "No decision: this is one run of one launch." in page.text
    assert "nothing here is a claim about the system" in page.text


def test_changed_answers_go_with_the_decision(tmp_path: Path) -> None:
    def changed(one: At) -> str:
        return ("another text altogether" if one.arm == "fast" else f"{one.prompt} says the same")[:20]

    (found,) = decide(compared(make_study(tmp_path, text=changed)))
    assert "on for" in found.sentence
    assert any("holds only where the changed answers are accepted" in said for said in found.limits)


def test_an_arm_that_failed_is_named_with_stage_and_symptom_and_decides_nothing(tmp_path: Path) -> None:
    path = make_study(
        tmp_path / "runs", arms=("base", "bad"), failed={("bad", n): ("weights", "out of memory") for n in range(4)}
    )
    (found,) = decide(compared(path))
    assert found.sentence == "no decision: not measured (weights: out of memory)"
    _, page = made(path, tmp_path / "report.html")
    assert "not measured: weights, out of memory" in page.text


def test_a_planned_study_decides_nothing(tmp_path: Path) -> None:
    path = make_study(tmp_path / "runs", status="planned", seal=False)
    _, page = made(path, tmp_path / "report.html")
    assert "No decision: nothing was measured (planned: fast)." in page.text
    assert decide({"arms": [{"arm": "fast", "ratio": 2.0, "n_launches": 4, "scope": "launches"}]}, planned=True)[
        0
    ].sentence == ("no decision: the study is planned, and its figures are estimates")


def test_a_control_that_differs_from_itself_stands_against_every_decision(tmp_path: Path) -> None:
    def drifting(one: At) -> float:
        return steady(one) * (1.05 if one.role == "control" else 1.0)

    found = compared(make_study(tmp_path, rate=drifting, control=4))
    doubt = control_doubt(found)
    assert doubt is not None
    assert "does not agree with itself" in doubt
    assert decide(found)[0].limits[0] == doubt
    assert control_doubt(compared(make_study(tmp_path / "other"))) is None


def test_an_effect_that_the_control_has_too_is_not_resolved() -> None:
    def entry(low: float, high: float) -> dict[str, Any]:
        return {"ratio": 1.0, "interval": [low, high], "n_launches": 4, "scope": "launches", "verdict": "slower"}

    arm = entry(0.9, 0.98) | {"arm": "fast", "by_domain": {"json": entry(0.9, 0.97), "prose": entry(0.9, 0.98)}}
    control = entry(0.97, 1.01) | {"by_domain": {"json": entry(0.975, 1.02), "prose": entry(0.975, 0.99)}}
    (found,) = decide({"arms": [arm], "control": control})
    assert words(found) == {"json": "off", "prose": "not resolved"}
    assert "the baseline differs from itself as far" in found.domains[1].rests_on


def test_a_ratio_that_is_not_1_never_reads_as_1() -> None:
    assert ratio_text(1.0) == "1.000"
    assert ratio_text(0.99962) == "0.9996"
    assert ratio_text(1.00002) == "1.00002"
    assert ratio_text(1.2846) == "1.285"


def test_a_study_of_one_arm_has_a_page_without_a_comparison(tmp_path: Path) -> None:
    _, page = made(make_study(tmp_path / "runs", arms=("base",)), tmp_path / "report.html")
    assert "No decision: nothing was measured." in page.text
    assert "verdict" in page.ids


def test_a_run_that_was_changed_by_hand_is_named_first(tmp_path: Path) -> None:
    path = make_run(tmp_path / "runs", rows())
    lines = (
        (path / "workers" / "0" / "requests.jsonl")
        .read_text()
        .replace('"finish_reason":"stop"', '"finish_reason":"done"', 1)
    )
    (path / "workers" / "0" / "requests.jsonl").write_text(lines)
    said, page = made(path, tmp_path / "report.html")
    assert said["verdict"] == "INVALID"
    assert page.text.index("hash_differs") < page.text.index("Decision", page.text.index("hash_differs"))


def test_differing_answers_show_where_they_part(tmp_path: Path) -> None:
    def changed(one: At) -> str:
        return f"{one.prompt} {'ends so' if one.arm == 'fast' else 'ends thus'} it is"[:20]

    _, page = made(make_study(tmp_path / "runs", text=changed), tmp_path / "report.html")
    assert "0 of 24 compared answers equal the baseline's" in page.text
    assert "from character 13" in page.text
    assert sum("data-diff" in attributes for _, attributes in page.tags) == 24


def test_a_long_run_has_a_bounded_table_with_the_failed_and_the_slowest_and_says_what_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_rows, "TOTAL_ROWS", 24)
    monkeypatch.setattr(report_rows, "FEWEST_ROWS", 24)
    many = [
        request(
            chunks=tuple((0.1 + 0.001 * (n * 37 % 101) + 0.02 * k, k, k + 1, 3) for k in range(6)),
            prompt_id=f"code_{n:03d}",
            outcome="no_usage" if n % 50 == 7 else "completed",
            server_fields=TIMINGS,
        )
        for n in range(150)
    ]
    path = make_run(tmp_path / "runs", many)
    said, page = made(path, tmp_path / "report.html")
    rows_ = {int(name[1:]) for name in page.ids if re.fullmatch(r"r\d+", name)}
    assert (said["n_requests"], len(page.requests), len(rows_)) == (150, 150, 24)
    failed = {n for n, row in enumerate(page.requests) if row["outcome"] != "completed"}
    slowest = sorted(range(150), key=lambda n: page.requests[n]["ttft_s"] or 0, reverse=True)[:3]
    assert failed | set(slowest) <= rows_
    assert "24 of 150 requests have a row here: 3 of the 3 that did not complete, the 4 slowest by each" in page.text
    assert "code: 150, 24 of them here" in page.text
    assert {n for n, row in enumerate(page.requests) if row["marks"] is not None} == rows_
    assert f"The page holds {24 * 6} of 900 chunk marks" in page.text
    assert "of the 24 requests with a row in its tables" in page.text


def test_a_column_of_few_texts_keeps_each_once_and_any_other_as_it_is() -> None:
    assert column(["a"] * 5 + [None] * 3) == {"of": ["a", None], "at": [0] * 5 + [1] * 3}
    assert column([None, None]) == {"of": [None]}
    for told in (["a", "b"], [True, 1, 1.0, None] * 4, [[1, 2], None], []):
        assert repr([stored(column(told), n) for n in range(len(told))]) == repr(told)
    assert column([True, 1, 1.0, 0] * 4) == [True, 1, 1.0, 0] * 4


def test_the_control_is_a_series_of_its_own_and_the_smallest_difference_has_one_name_and_form(tmp_path: Path) -> None:
    path = make_study(tmp_path / "runs", control=1)
    _, page = made(path, tmp_path / "report.html")
    assert page.data["arms"] == ["base", "fast", "base (control)"]
    named = {(run["role"], run["arm"]) for run in page.data["runs"]}
    assert named == {("baseline", "base"), ("arm", "fast"), ("control", "base (control)")}
    mde = compared(path)["arms"][0]["mde"]
    assert percent(mde) in page.text and "least seen" not in page.text
    assert "1 passes" not in page.text and "4 paired launches x 1 pass" in page.text
