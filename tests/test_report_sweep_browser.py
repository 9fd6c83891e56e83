"""The charts of a sweep in a real Chromium: drawn at two widths, by keys alone, told apart by more than colour."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import NEEDED, Browser, a_browser
from tests.level_factory import Played, make_level_run, make_sweep_study
from tests.test_report import HOSTILE, made
from tests.traces import BASE

pytestmark = NEEDED
FAST = Played(accepted=2, cost=lambda n: 1.6 + 0.25 * n, blocks=300)
WIDTHS = (1280, 480)
CHARTS = ("curve", "sweep", "breakeven")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with a_browser() as found:
        yield found


@pytest.fixture(scope="module")
def study_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("study")
    servers = {"base": Played(), "fast": FAST}
    path = make_sweep_study(
        root, "concurrency", (1, 4, 16), servers, n=9, launches=2, control=1, limits={"tpot_slo_s": 0.012}
    )
    made(path, root / "report.html")
    return root / "report.html"


@pytest.fixture(scope="module")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hostile name, and a trace."""
    root = tmp_path_factory.mktemp("run")
    path = make_level_run(root / "runs", "arrivals", (1.0, 8.0), n=9, arm_name=HOSTILE)
    (path / "traces").mkdir()
    shutil.copy(BASE, path / "traces")
    made(path, root / "report.html")
    return root / "report.html"


@pytest.mark.parametrize("width", WIDTHS)
def test_the_charts_are_drawn_inside_their_page_at_two_widths(browser: Browser, study_file: Path, width: int) -> None:
    browser.open(study_file, width)
    for chart in CHARTS:
        assert browser.js(f"all('figure[data-chart={chart}] .plot > svg path.line').length") >= 2, chart
    assert browser.js("document.documentElement.scrollWidth") <= width
    assert browser.complaints() == []
    colours = browser.picture("figure[data-chart=sweep] .plot > svg")
    assert colours[0, 114, 178] > 50 and colours[192, 74, 0] > 50  # the baseline's blue, the arm's vermilion


def test_arms_differ_by_shape_and_dash_beside_their_colour(browser: Browser, study_file: Path) -> None:
    browser.open(study_file)
    lines = browser.js(
        "all('figure[data-chart=sweep] .plot > svg path.line')"
        ".map(p => [p.getAttribute('class'), p.getAttribute('stroke-dasharray')].join())"
    )
    shapes = browser.js(
        "all('figure[data-chart=sweep] .legend path.mark').map(p => p.getAttribute('d').replace(/[0-9.-]+/g, ''))"
    )
    assert len(set(lines)) == len(lines) == 3 and len(set(shapes)) >= 2


def test_keys_alone_lead_from_a_level_to_its_row(browser: Browser, study_file: Path) -> None:
    browser.open(study_file)
    browser.js("one('figure[data-chart=curve] .plot').focus()")
    browser.key("ArrowRight")
    browser.key("ArrowRight")
    said = browser.js("document.getElementById('said').textContent")
    assert said.startswith("base · users=4") and "tok/s, TTFT median" in said
    browser.key("Enter")
    browser.until("location.hash.startsWith('#level-baseline-base')")
    assert browser.js("document.getElementById(decodeURIComponent(location.hash.slice(1))).tagName") == "TD"


def test_the_break_even_is_drawn_and_said_for_the_ratio_chosen(browser: Browser, study_file: Path) -> None:
    browser.open(study_file)
    box = "figure[data-chart=breakeven]"
    assert browser.js(f"all('{box} rect.band').length") == 1
    assert "ahead below" in browser.js(f"one('{box} .plot').textContent")
    browser.js(f"all('{box} button').find(b => b.textContent === 'decode rate of a request').click()")
    assert browser.js(f"one('{box} button[aria-pressed=true]').textContent") == "decode rate of a request"
    assert browser.js(f"all('{box} path.mark, {box} path.hollow').length") >= 6


def test_a_number_chosen_by_its_button_is_the_one_drawn(browser: Browser, study_file: Path) -> None:
    browser.open(study_file)
    box = "figure[data-chart=sweep]"
    for name, title in (("waiting", "requests waiting in the server"), ("TPOT", "TPOT, ms, median")):
        browser.js(f"all('{box} button').find(b => b.textContent === '{name}').click()")
        assert title in browser.js(f"one('{box} .plot > svg').textContent")
    assert "objective 12.0 ms" in browser.js(f"one('{box} .plot > svg').textContent")


@pytest.mark.parametrize("width", WIDTHS)
def test_a_run_with_a_hostile_name_draws_its_levels_and_its_trace_and_runs_nothing(
    browser: Browser, run_file: Path, width: int
) -> None:
    browser.open(run_file, width, dark=True)
    assert browser.js("window.hacked") is None and browser.complaints() == []
    assert browser.js("all('figure[data-chart=shares] rect').length") >= 5
    assert "idle 78.8 %" in browser.js("one('figure[data-chart=shares] .plot > svg').textContent")
    assert browser.js("document.documentElement.scrollWidth") <= width
