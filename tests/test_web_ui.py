"""The web UI: a real Locust with its pages, started, watched and read in a real headless Chromium."""

import json
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from analysis.loading import load_run
from analysis.measures import measure
from evidence.reading import open_run
from evidence.verify import verify
from infra.fake_engine import FakeEngine, running_fake_engine
from tests.browser import NEEDED, Browser, a_browser
from tests.load_runs import load_scenario
from tests.locust_runs import environment
from tests.warm_locust import WarmProcess, start_warm

LEVELS = "users = [1, 3]\nrequests = 6"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Ui:
    """A Locust whose web UI listens on loopback."""

    def __init__(self, port: int, runs: Path, process: WarmProcess) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.runs = runs
        self.process = process

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=20) as answer:
            return str(answer.read().decode())

    def post(self, path: str, body: str = "", **headers: str) -> tuple[int, str]:
        request = urllib.request.Request(self.url + path, body.encode(), headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def live(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get("/evidence/live.json"))
        return found

    def until(self, state: str, heard: set[str] | None = None) -> dict[str, Any]:
        """``heard`` gets what the page says of each other state, numbers left out."""
        for _ in range(600):
            said = self.live()
            if heard is not None and said["state"] != state:
                heard.add(re.sub(r"\d+", "N", said["message"]))
            if said["state"] == state:
                return said
            time.sleep(0.1)
        raise AssertionError(f"never {state}: {said['state']}, {said['message']}")


@contextmanager
def locust_ui(folder: Path, host: str, *more: str, env: dict[str, str] | None = None) -> Iterator[Ui]:
    port, runs = free_port(), folder / "runs"
    argv = ["-f", "locustfiles/sweep.py", "--host", host, "--web-port", str(port)]
    argv += [
        "--scenario",
        str(load_scenario(folder, "concurrency", levels=LEVELS)),
        "--label",
        "fake",
        "--run-dir",
        str(runs),
    ]
    process = start_warm([*argv, *more], environment() | (env or {}), stderr=str(folder / "err"))
    ui = Ui(port, runs, process)
    try:
        for _ in range(300):
            if process.poll() is not None:
                break
            try:
                urllib.request.urlopen(ui.url + "/login", timeout=5).close()
                break
            except OSError:
                time.sleep(0.1)
        yield ui
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def engine() -> Iterator[FakeEngine]:
    with running_fake_engine(fake={"ttft_s": 0.02, "gap_s": 0.004, "n_tokens": 24}) as running:
        yield running


@pytest.fixture(scope="module")
def ui(engine: FakeEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    with locust_ui(tmp_path_factory.mktemp("ui"), engine.url) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with a_browser() as found:
        yield found


def click(browser: Browser, text: str) -> None:
    find = f"[...document.querySelectorAll('button')].find(e => e.textContent === {json.dumps(text)})"
    browser.until(find)
    browser.js(f"{find}.click()")


@NEEDED
def test_a_sweep_is_started_watched_and_read_in_the_browser(ui: Ui, browser: Browser, engine: FakeEngine):
    # Every option is a field; arms and scenarios are to be chosen.
    browser.visit(ui.url + "/")
    click(browser, "Custom parameters")
    browser.until("document.querySelector('[name=scenario]')")
    fields = browser.js("[...document.querySelectorAll('input,select')].map(e => e.name)")
    told = {"scenario", "arm", "label", "runDir", "model", "metricsUrl", "prometheusUrl", "transport", "extraBody"}
    assert told | {"header", "note"} <= set(fields)
    arms = browser.js("[...document.querySelector('[name=arm]').options].map(o => o.value)")
    assert {"", "cpu-f32", "cpu-f32-draft"} <= set(arms)
    scenarios = browser.js("[...document.querySelector('[name=scenario]').options].map(o => o.value)")
    assert {"scenarios/concurrency.toml", "scenarios/context.toml"} <= set(scenarios)
    assert not [name for name in scenarios if "arrivals" in name or "sequential" in name], "of other locustfiles"

    # Started there, it runs to its seal; the page follows.
    click(browser, "Start")
    ui.until("running")
    browser.visit(ui.url + "/evidence/")
    said = ui.until("sealed")
    browser.until("document.documentElement.dataset.state === 'sealed'")
    assert browser.js("byId('state').dataset.outcome") == said["outcome"] in ("VALID", "DEGRADED", "INVALID")
    folder = Path(said["live"]["run"])
    run = load_run(folder)
    assert verify(folder) == ()
    assert run.seal is not None and run.seal.completed == run.seal.planned
    rows = browser.js("[...document.querySelectorAll('#levels tbody tr')].map(r => r.innerText.split('\\t'))")
    assert [row[:4] for row in rows if row[0].startswith("users")] == [
        ["users=1", "6", "6", "0"],
        ["users=3", "6", "6", "0"],
    ]
    timed = [one for one in open_run(folder).requests if measure(one, max_draft_tokens=None).tpot_s.value is not None]
    for chart, n in {"ttft": run.seal.planned, "tpot": len(timed)}.items():  # one that came in one segment has no TPOT
        assert browser.js(f"document.querySelectorAll('#{chart} circle').length") == n
    assert len(timed) > run.seal.planned / 2
    assert folder.name in browser.js("byId('verdict').textContent")
    assert colourful(browser, "#ttft")

    # The report and the folder are linked, and nothing in the page complained.
    report = ui.get("/evidence/report")
    assert report.startswith("<!doctype html>") and folder.name in report
    assert "seal.json" in ui.get("/evidence/run/")
    assert json.loads(ui.get("/evidence/run/seal.json"))["id"] == folder.name
    assert browser.complaints() == []

    # Locust's own totals hold each request once; our table stands beside them.
    stats = json.loads(ui.get("/stats/requests"))
    total = next(one for one in stats["stats"] if one["name"] == "Aggregated")
    assert total["num_requests"] == run.seal.planned
    table = stats["extended_stats"][0]["data"]
    assert [row["level"] for row in table if row["level"].startswith("users")] == ["users=1", "users=3"]


def colourful(browser: Browser, selector: str) -> bool:
    """A drawn chart has more than paper and ink."""
    return len(browser.picture(selector)) > 3


def test_a_second_run_is_stopped_in_the_middle_and_sealed_as_what_it_is(ui: Ui, engine: FakeEngine):
    engine.control(fake={"ttft_s": 0.02, "gap_s": 0.3, "n_tokens": 24})
    try:
        before = set(ui.runs.iterdir()) if ui.runs.exists() else set()
        status, said = ui.post("/swarm", f"host={engine.url}&label=slow", **FORM)
        assert status == 200 and json.loads(said)["success"], said
        for _ in range(100):
            if (ui.live()["live"] or {}).get("in_flight"):
                break
            time.sleep(0.1)
        busy = json.loads(ui.post("/swarm", f"host={engine.url}", **FORM)[1])
        assert not busy["success"] and "under way" in busy["message"]
        assert ui.post("/stop")[0] == 200
        heard: set[str] = set()
        said_end = ui.until("sealed", heard)
        assert "sealing for N s; waits for the folder to be checked" in heard, heard
        (folder,) = {one for one in ui.runs.iterdir() if one.is_dir()} - before
        run = load_run(folder)
        assert run.seal is not None and run.seal.cancelled >= 1 and run.manifest.label == "slow"
        assert "INVALID" in said_end["verdict"] and said_end["outcome"] == "INVALID"
    finally:
        engine.control(fake={"ttft_s": 0.02, "gap_s": 0.004, "n_tokens": 24})


FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("label=x&host=http://127.0.0.1:1", "nothing answers"),
        ("label=x&scenario=nowhere.toml", "nowhere.toml"),
        ("label=&arm=", "exactly one of"),
        ("label=x&passes=0", "--passes"),
        ("label=x&transport=carrier-pigeon", "--transport 'carrier-pigeon' is none: give wire or openai"),
        ("label=x%00", "--label holds a null byte"),
        ("label=x&extra_body={", "--extra-body"),
    ],
)
def test_what_cannot_run_is_refused_in_words_on_the_page(ui: Ui, engine: FakeEngine, typed: str, told: str):
    body = typed if "host=" in typed else f"host={engine.url}&{typed}"
    status, answer = ui.post("/swarm", body, **FORM)
    said = json.loads(answer)
    assert status == 200 and said["success"] is False
    assert told in said["message"]


def test_another_sites_page_can_neither_start_nor_stop_a_run(ui: Ui):
    for path in ("/swarm", "/stop", "/stats/reset"):
        assert ui.post(path, "label=x", Origin="http://evil.example", **FORM)[0] == 403


def test_the_web_ui_listens_on_loopback_only(ui: Ui):
    listening = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    port = f":{int(ui.url.rsplit(':', 1)[1]):04X}"
    addresses = {line.split()[1].split(":")[0] for line in listening.splitlines()[1:] if line.split()[1].endswith(port)}
    assert addresses == {"0100007F"}


def test_a_login_stands_before_every_page_where_one_is_asked_for(engine: FakeEngine, tmp_path: Path):
    secret = {"LOCUST_WEB_USER": "ann", "LOCUST_WEB_PASSWORD": "correct horse"}
    with locust_ui(tmp_path, engine.url, "--web-login", env=secret) as guarded:
        for path in ("/evidence/", "/evidence/live.json", "/evidence/report", "/"):
            assert "auth" in guarded.get(path) or "login" in guarded.get(path).lower()
            assert "state" not in guarded.get("/evidence/live.json")[:40]
        guarded.post("/swarm", f"host={engine.url}&label=x", **FORM)
        assert not guarded.runs.exists() or not any(guarded.runs.iterdir())
        jar = urllib.request.HTTPCookieProcessor()
        opener = urllib.request.build_opener(jar)
        opener.open(guarded.url + "/evidence-login", b"username=ann&password=wrong", timeout=20).close()
        with opener.open(guarded.url + "/evidence/live.json", timeout=20) as answer:
            assert b'"idle"' not in answer.read()
        opener.open(guarded.url + "/evidence-login", b"username=ann&password=correct+horse", timeout=20).close()
        with opener.open(guarded.url + "/evidence/live.json", timeout=20) as answer:
            assert json.load(answer)["state"] == "idle"


def test_a_login_without_a_password_is_refused_before_anything_listens(engine: FakeEngine, tmp_path: Path):
    with locust_ui(tmp_path, engine.url, "--web-login") as refused:
        assert refused.process.wait(30) == 2
    assert "LOCUST_WEB_PASSWORD" in (tmp_path / "err").read_text()


def test_a_name_made_to_point_here_is_refused(ui: Ui):
    request = urllib.request.Request(ui.url + "/evidence/live.json", headers={"Host": "rebound.example"})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(request, timeout=20)


def test_fields_that_are_no_options_of_ours_change_nothing(ui: Ui, engine: FakeEngine):
    said = json.loads(ui.post("/swarm", f"host={engine.url}&label=&master=true&expect_workers=x", **FORM)[1])
    assert said["success"] is False and "exactly one of" in said["message"]


def test_headers_typed_for_a_master_are_never_in_what_locust_sends_its_workers(engine: FakeEngine, tmp_path: Path):
    master = ("--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", str(free_port()))
    with locust_ui(tmp_path, engine.url, *master, "--header", "X-Key=secret-on-the-command-line") as led:
        page = led.get("/")
        assert "secret-on-the-command-line" not in page
        said = json.loads(led.post("/swarm", f"host={engine.url}&label=x&header=X-Key%3Dtyped-secret", **FORM)[1])
        assert said["success"] is False and "no worker is connected" in said["message"]
        assert "typed-secret" not in led.get("/")


def test_ways_of_starting_that_pass_the_page_by_are_refused(engine: FakeEngine, tmp_path: Path):
    with locust_ui(tmp_path, engine.url, "--autostart") as refused:
        assert refused.process.wait(30) == 2
    assert "--autostart" in (tmp_path / "err").read_text()
