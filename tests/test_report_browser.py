"""The report in a real Chromium: it draws, answers keys and clicks, prints, and lets no answer of a model run.

Driven through the DevTools protocol. Without a Chromium on this machine the tests are skipped.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main as analysis_main
from analysis.loading import load_run
from analysis.report_gather import view_run
from analysis.report_sections import run_page, study_page
from analysis.report_study import view_study
from tests.browser import NEEDED, Browser, a_browser
from tests.run_factory import llamacpp_scrape, make_run, request
from tests.study_factory import At, make_study, steady
from tests.test_report import HOSTILE

pytestmark = NEEDED
WIDTHS = (1280, 480)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with a_browser() as found:
        yield found


@pytest.fixture(scope="module")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of twelve measured requests in three domains; one failed, one answer is hostile."""
    folder = tmp_path_factory.mktemp("run")
    own = []
    for n in range(12):
        marks = tuple((0.1 + 0.004 * n + (0.02 + 0.0004 * n) * k, k, k + 1, 3) for k in range(10))
        fields: dict[str, Any] = {
            "prompt_id": f"p_{n:02d}",
            "domain": ("code", "json", "prose")[n % 3],
            "chunks": marks,
        }
        fields["output_text"] = HOSTILE if n == 4 else f"answer {n}"
        if n == 7:
            fields |= {"outcome": "timeout_stalled", "finish_reason": None}
        own.append(request(**fields))
    scrapes = [llamacpp_scrape("before", -1.0), llamacpp_scrape("after", 70.0, prompt=240, generated=120)]
    path = make_run(folder / "runs", own, scrapes=scrapes, texts={"p_04": HOSTILE}, label=HOSTILE, arm=None)
    page = folder / "report.html"
    page.write_text(run_page(view_run(load_run(path)), folder), encoding="utf-8")
    return page


@pytest.fixture(scope="module")
def study_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of a study: one arm faster, one that failed, answers that differ."""
    folder = tmp_path_factory.mktemp("study")

    def said(one: At) -> str:
        return f"{one.prompt} {'ends so' if one.arm == 'fast' and one.place == 1 else 'ends thus'} it is"[:20]

    failed = {("bad", n): ("draft", "vocabularies differ") for n in range(4)}
    path = make_study(folder / "runs", arms=("base", "fast", "bad"), failed=failed, rate=steady, text=said)
    page = folder / "report.html"
    page.write_text(study_page(view_study(path), folder), encoding="utf-8")
    return page


@pytest.mark.parametrize("width", WIDTHS)
def test_a_page_loads_without_a_complaint_and_never_scrolls_sideways(
    browser: Browser, run_file: Path, study_file: Path, width: int
) -> None:
    for page in (run_file, study_file):
        browser.open(page, width)
        assert browser.complaints() == []
        assert browser.js("document.documentElement.scrollWidth") <= width
        empty = browser.js("all('figure[data-chart]').filter(f => !f.querySelector('.plot svg')).length")
        assert empty == 0


def test_a_page_loads_nothing_but_itself(browser: Browser, run_file: Path) -> None:
    browser.open(run_file)
    asked = [one["params"]["request"]["url"] for one in browser.events if one["method"] == "Network.requestWillBeSent"]
    assert asked == [run_file.as_uri()]


def test_a_hostile_answer_neither_runs_nor_breaks_the_page(browser: Browser, run_file: Path) -> None:
    browser.open(run_file, hash_="#r4")
    assert browser.js("typeof window.hacked") == "undefined"
    assert browser.js("all('img, iframe').length") == 0
    browser.until("!one('#detail').hidden")
    shown = browser.js("all('#detail pre.model').pop().textContent")
    assert shown == HOSTILE.replace("\u2028", "U+2028").replace("\u202e", "U+202E").replace("\u2066", "U+2066").replace(
        "\x07", "U+0007"
    )
    assert browser.js("one('h1').textContent").startswith("</script><img")
    assert browser.complaints() == []


def test_markup_that_slipped_in_could_not_run_either(browser: Browser, run_file: Path, tmp_path: Path) -> None:
    broken = tmp_path / "report.html"
    slipped = "<img src=x onerror='window.hacked=1'><script>window.hacked=1</script>"
    slipped += "<a id=slip href='javascript:window.hacked=1'>x</a>"
    broken.write_text(run_file.read_text().replace("<main>", "<main>" + slipped))
    browser.open(broken)
    browser.js("document.getElementById('slip').click()")
    assert browser.js("typeof window.hacked") == "undefined"
    assert any("Content Security Policy" in json.dumps(one) for one in browser.complaints())


def test_each_request_has_its_mark_and_the_failed_one_its_cross(browser: Browser, run_file: Path) -> None:
    browser.open(run_file)
    plot = "figure[data-chart=requests] .plot > svg"
    assert browser.js(f"all('{plot} path.mark').length") == 11
    assert browser.js(f"all('{plot} path.fail').length") == 1
    steps = browser.js("all('figure[data-field=ttft_s] .plot > svg path.line').length")
    assert steps == 3


def test_screenshots_hold_the_colours_of_the_domains_in_light_and_dark(browser: Browser, run_file: Path) -> None:
    light = {(0x00, 0x72, 0xB2), (0xC0, 0x4A, 0x00), (0x00, 0x78, 0x5A)}
    dark = {(0x56, 0xB4, 0xE9), (0xF0, 0x8A, 0x4B), (0x3C, 0xC8, 0xA0)}
    for dark_mode, page, wanted in ((False, (255, 255, 255), light), (True, (0x12, 0x15, 0x1A), dark)):
        browser.open(run_file, dark=dark_mode)
        found = browser.picture("figure[data-chart=lanes] .lane > svg")  # bars of full colour
        assert all(found[one] > 30 for one in wanted), found.most_common(8)
        assert found.most_common(1)[0][0] == page


def test_the_theme_button_turns_light_to_dark_and_back(browser: Browser, run_file: Path) -> None:
    browser.open(run_file)
    paper = "getComputedStyle(document.body).backgroundColor"
    assert browser.js(paper) == "rgb(255, 255, 255)"
    browser.js("document.getElementById('theme').click()")
    assert browser.js(paper) == "rgb(18, 21, 26)"
    browser.js("document.getElementById('theme').click()")
    assert browser.js(paper) == "rgb(255, 255, 255)"


def test_print_is_black_on_white_without_what_only_a_screen_can_use(browser: Browser, run_file: Path) -> None:
    browser.open(run_file, dark=True, media="print")
    assert browser.js("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    for gone in ("nav", "#theme", ".controls", "#filter"):
        assert browser.js(f"one('{gone}').offsetParent") is None
    assert browser.js("one('figure[data-chart=requests] .plot > svg').getBoundingClientRect().height") > 100


def test_keys_alone_lead_from_a_mark_to_its_request_and_back(browser: Browser, run_file: Path) -> None:
    browser.open(run_file)
    plot = "one('figure[data-chart=requests] .plot')"
    browser.js(f"{plot}.scrollIntoView(); {plot}.focus()")
    scrolled = browser.js("window.scrollY")
    browser.key("ArrowRight")
    browser.key("ArrowRight")
    said = browser.js("document.getElementById('said').textContent")
    assert "m0003 · p_03 · code" in said
    browser.key("Enter")
    browser.until("!one('#detail').hidden")
    assert browser.js("location.hash") == "#r3"
    assert browser.js("one('#detail h2').textContent") == "m0003: p_03"
    assert browser.js("document.activeElement.id") == "detail"
    detail = browser.js("document.getElementById('detail').textContent")
    assert "workers/0/requests.jsonl, line 4" in detail
    assert "plan.jsonl, line 4" in detail
    browser.key("Escape")
    assert browser.js("document.getElementById('detail').hidden") is True
    assert browser.js(f"document.activeElement === {plot}") is True
    assert browser.js("window.scrollY") == scrolled


def test_a_click_on_a_mark_opens_its_request(browser: Browser, run_file: Path) -> None:
    browser.open(run_file)
    at = browser.place("figure[data-chart=requests] .plot > svg path.mark")
    x, y = at["x"] + at["width"] / 2, at["y"] + at["height"] / 2
    browser.mouse("mouseMoved", x, y)
    assert browser.js("document.getElementById('tip').textContent").startswith("m0000 · p_00 · code")
    browser.mouse("mousePressed", x, y)
    browser.mouse("mouseReleased", x, y)
    browser.until("!one('#detail').hidden")
    assert browser.js("location.hash") == "#r0"


def test_the_cursor_stands_at_one_time_in_every_lane_and_a_drag_zooms_all(browser: Browser, run_file: Path) -> None:
    browser.open(run_file)
    at = browser.place("figure[data-chart=lanes] .lane > svg")
    middle = at["y"] + at["height"] / 2
    browser.mouse("mouseMoved", at["x"] + at["width"] / 2, middle)
    lines = "all('.lane line.cursor').map(l => [l.getAttribute('x1'), l.getAttribute('visibility')].join(' '))"
    found = browser.js(lines)
    assert len(found) >= 4
    assert len(set(found)) == 1
    assert found[0].endswith("visible")
    browser.mouse("mousePressed", at["x"] + at["width"] * 0.3, middle)
    browser.mouse("mouseMoved", at["x"] + at["width"] * 0.5, middle)
    browser.mouse("mouseReleased", at["x"] + at["width"] * 0.5, middle)
    box = "one('figure[data-chart=lanes] .plot')"
    low, high, first, last = browser.js(f"[{box}.view.low, {box}.view.high, ...{box}.view.all]")
    assert first < low < high < last
    assert (high - low) / (last - first) == pytest.approx(0.2, rel=0.1)
    browser.js(f"{box}.focus()")
    browser.key("0")
    assert browser.js(f"[{box}.view.low, {box}.view.high]") == [first, last]
    browser.key("+")
    browser.key("ArrowRight", shift=True)
    assert browser.js(f"{box}.view.high - {box}.view.low") == pytest.approx((last - first) / 2)


def test_the_table_sorts_by_a_number_and_filters_by_text(browser: Browser, run_file: Path) -> None:
    browser.open(run_file)
    title = "all('table.requests th button').find(b => b.textContent === 'tok/s')"
    browser.js(f"{title}.click()")
    rates = "all('#requests-0-code tr:not(.group) td:nth-child(6)').map(c => parseFloat(c.textContent))"
    found = browser.js(rates)
    assert found == sorted(found)
    browser.js(f"{title}.click()")
    assert browser.js(rates) == sorted(found, reverse=True)
    browser.js("one('#filter').value = 'timeout'; one('#filter').dispatchEvent(new Event('input'))")
    assert browser.js("all('table.requests tr[id]').filter(r => !r.hidden).map(r => r.id)") == ["r7"]


def test_a_failed_request_is_told_by_more_than_its_colour(browser: Browser, run_file: Path) -> None:
    browser.open(run_file)
    assert "timeout_stalled" in browser.js("document.getElementById('r7').textContent")
    marks = browser.js(
        "[...new Set(all('figure[data-chart=requests] .legend path').map(p => p.getAttribute('d').length))]"
    )
    assert len(marks) >= 3  # a shape of its own for each domain and for failure


def test_the_forest_names_each_arm_and_leads_to_its_pairs(browser: Browser, study_file: Path) -> None:
    browser.open(study_file)
    said = browser.js("one('figure[data-chart=forest] svg').textContent")
    for words in ("control", "fast", "bad", "not measured: draft, vocabularies differ", "faster"):
        assert words in said
    browser.js("one('figure[data-chart=forest] .plot').focus()")
    for _ in range(5):
        browser.key("ArrowRight")
    browser.key("Enter")
    browser.until("one('#pairs-fast-all details').open")
    assert browser.js("location.hash") == "#pairs-fast-all"


def test_two_answers_are_shown_whole_word_by_word(browser: Browser, study_file: Path) -> None:
    browser.open(study_file)
    browser.js("one('button[data-diff]').click()")
    parts = browser.js("[...one('.diff pre:last-of-type').childNodes].map(n => [n.nodeName, n.textContent])")
    assert ["DEL", "thus"] in parts
    assert ["INS", "so"] in parts
    assert "".join(text for name, text in parts if name != "INS").startswith("code_02 ends thus")


def test_the_paired_plot_has_a_mark_for_each_pair_of_the_arm(browser: Browser, study_file: Path) -> None:
    browser.open(study_file)
    marks = "all('figure[data-chart=paired] .plot > svg path.mark').length"
    assert browser.js(marks) == 24
    browser.js("all('figure[data-chart=paired] button').find(b => b.textContent === 'control').click()")
    assert browser.js(marks) == 6


def test_what_the_page_shows_of_a_run_is_what_summary_prints(
    browser: Browser, run_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    browser.open(run_file)
    analysis_main(["summary", str(run_file.parent / "runs" / "run-test"), "--json"])
    summary = json.loads(capsys.readouterr().out)
    for place, group in enumerate(summary["groups"]):
        shown = browser.js(f"one('data[data-path=\"summary.groups.{place}.decode_tok_per_s.median\"]').value")
        assert float(shown) == group["decode_tok_per_s"]["median"]
        legend = browser.js("one('figure[data-field=tpot_s] .legend').textContent")
        if group["domain"] != "all":
            assert (
                f"{group['domain']}: {group['tpot_s']['n']}, median {1000 * group['tpot_s']['median']:.1f} ms" in legend
            )
