"""The report in a real Chromium: it draws, answers keys and clicks, prints, and lets no answer of a model run.

Driven through the DevTools protocol. Without a Chromium on this machine the tests are skipped.
"""

import base64
import json
import shutil
import struct
import subprocess
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from analysis.__main__ import main as analysis_main
from analysis.loading import load_run
from analysis.report_gather import view_run
from analysis.report_sections import run_page, study_page
from analysis.report_study import view_study
from tests.run_factory import llamacpp_scrape, make_run, request
from tests.study_factory import At, make_study, steady
from tests.test_report import HOSTILE

websocket = pytest.importorskip("websocket", reason="websocket-client is not installed")
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install -y chromium")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
)
WIDTHS = (1280, 480)
FINDERS = (
    "var one = s => document.querySelector(s), all = s => [...document.querySelectorAll(s)],"
    " button = (s, t) => all(s + ' button').find(b => b.textContent === t);"
)
READY = "document.documentElement && document.documentElement.dataset.ready"


class Browser:
    """One headless Chromium with one tab, and everything it complained of."""

    def __init__(self, profile: Path) -> None:
        self.process = subprocess.Popen(
            [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        port = self._port(profile / "DevToolsActivePort")
        with urlopen(f"http://127.0.0.1:{port}/json", timeout=30) as answer:
            tab = next(one for one in json.load(answer) if one["type"] == "page")
        self.socket = websocket.create_connection(tab["webSocketDebuggerUrl"], timeout=60)
        self.count = 0
        self.events: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _port(self, file: Path) -> str:
        for _ in range(600):
            if file.exists() and (said := file.read_text()).count("\n"):
                return said.split("\n")[0]
            assert self.process.poll() is None, "Chromium ended before it listened"
            time.sleep(0.05)
        raise AssertionError("Chromium did not listen within 30 s")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self.socket.recv())
            if answer.get("id") == self.count:
                assert "error" not in answer, answer
                found: dict[str, Any] = answer["result"]
                return found
            self.events.append(answer)

    def open(self, page: Path, width: int = 1280, *, dark: bool = False, media: str = "", hash_: str = "") -> None:
        """Load a page at a width and wait until it is drawn."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", media=media, features=scheme)
        self.call("Page.navigate", url="about:blank")
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri() + hash_)
        for _ in range(600):
            if self.js(READY) == "yes":
                self.js(FINDERS + "document.documentElement.style.scrollBehavior = 'auto'")
                return
            time.sleep(0.05)
        raise AssertionError(f"the page was not drawn: {self.complaints()}")

    def js(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression is true: addresses change a moment after what changed them."""
        for _ in range(200):
            if self.js(f"Boolean({expression})"):
                return
            time.sleep(0.025)
        raise AssertionError(f"never true: {expression}")

    def key(self, name: str, *, shift: bool = False) -> None:
        self.call("Input.dispatchKeyEvent", type="keyDown", key=name, modifiers=8 if shift else 0)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name, modifiers=8 if shift else 0)

    def mouse(self, kind: str, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def place(self, selector: str) -> dict[str, float]:
        """Where an element stands in the window, scrolled to."""
        said = self.js(
            f"(() => {{ const e = one({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
            " const r = e.getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; })()"
        )
        return dict(zip(("x", "y", "width", "height"), said, strict=True))

    def picture(self, selector: str) -> Counter[tuple[int, int, int]]:
        """How many pixels of each colour a screenshot of an element has."""
        area = self.place(selector) | {"scale": 1}
        area["y"] += self.js("window.scrollY")
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=area)
        return colours(base64.b64decode(shot["data"]))

    def complaints(self) -> list[dict[str, Any]]:
        """Exceptions, errors on the console, broken rules of the page's policy."""
        wrong = ("Runtime.exceptionThrown", "Log.entryAdded")
        return [
            one
            for one in self.events
            if one["method"] in wrong
            or (one["method"] == "Runtime.consoleAPICalled" and one["params"]["type"] in ("error", "warning"))
        ]

    def close(self) -> None:
        try:
            self.call("Browser.close")
            self.socket.close()
        finally:
            self.process.wait(20)


def colours(png: bytes) -> Counter[tuple[int, int, int]]:
    """The pixels of an 8-bit PNG by colour (the filters of its rows undone)."""
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    assert depth == 8
    size = {2: 3, 6: 4}[kind]
    data, at = b"", 8
    while at < len(png):
        length, name = struct.unpack(">I4s", png[at : at + 8])
        data += png[at + 8 : at + 8 + length] if name == b"IDAT" else b""
        at += 12 + length
    raw, above, found = zlib.decompress(data), bytearray(width * size), Counter[tuple[int, int, int]]()
    for row in range(height):
        start = row * (width * size + 1)
        line = bytearray(raw[start + 1 : start + 1 + width * size])
        for n in range(len(line)):
            left = line[n - size] if n >= size else 0
            corner = above[n - size] if n >= size else 0
            line[n] = (line[n] + _filtered(raw[start], left, above[n], corner)) & 255
        found.update((line[n], line[n + 1], line[n + 2]) for n in range(0, len(line), size))
        above = line
    return found


def _filtered(kind: int, left: int, up: int, corner: int) -> int:
    if kind < 4:
        return (0, left, up, (left + up) // 2)[kind]
    guess = left + up - corner
    return min((abs(guess - one), place, one) for place, one in enumerate((left, up, corner)))[2]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    profile = Path(tempfile.mkdtemp(prefix="chromium-"))
    found = Browser(profile)
    try:
        yield found
    finally:
        found.close()
        shutil.rmtree(profile, ignore_errors=True)


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
