"""A search for the highest level that holds, whole: real headless Locust against a server whose limit is known.

The fake engine generates four answers at once, each in 0.06 s; the others wait their turn. Up to four users, or 66
arrivals a second, nobody waits and the first token comes after 0.02 s. Far above nearly everybody waits for longer
than the objective of 0.3 s. What a busy machine adds is less than what lies between.
"""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from evidence.verify import verify
from infra.fake_engine import FakeEngine, running_fake_engine
from tests.load_runs import load_command, load_scenario
from tests.locust_runs import Ran, analysis, ended, start_locust
from tests.warm_locust import WarmProcess

OBJECTIVE_S = 0.3
OF_A_SERVER_WITHOUT_AN_ARM = {"model_revision_unknown", "container_digest_unknown"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is searched, and what is known of it."""

    ran: Ran
    candidates: list[str]
    visited: list[str]  # in this order
    best: str


def begun(folder: Path, engine: FakeEngine, locustfile: str, kind: str, **section: str) -> WarmProcess:
    more = {"cache": 'policy = "cold"\nper = "request"', "limits": f"timeout_s = 9.0\nttft_slo_s = {OBJECTIVE_S}"}
    file = load_scenario(folder, kind, warmup="requests = 1", **more, **section)
    return start_locust(load_command(locustfile, engine.url, file, folder / "runs"))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """Both searches, at the same time, each on a server of its own: they mostly wait."""
    levels = "users = [1, 4, 40]\nrequests = 40\nsearch = true"
    arrivals = 'process = "constant"\nrate_per_s = [40.0, 400.0, 800.0]\nrequests = 40\nsearch = true'
    users, rates = (tmp_path_factory.mktemp(name) for name in ("users", "rates"))
    schedule = {"ttft_s": 0.02, "gap_s": 0.006}
    with running_fake_engine(slots=4, fake=schedule) as one, running_fake_engine(slots=4, fake=schedule) as other:
        by_users = begun(users, one, "sweep", "concurrency", levels=levels)
        by_rate = begun(rates, other, "arrivals", "arrivals", arrivals=arrivals)
        return {"users": ended(by_users), "rates": ended(by_rate)}


@pytest.fixture(scope="module")
def by_users(ran: dict[str, Ran]) -> Case:
    return Case(
        ran=ran["users"],
        candidates=[f"users={n}" for n in (1, 4, 40)],
        visited=["users=4", "users=40"],
        best="users=4",
    )


@pytest.fixture(scope="module")
def by_rate(ran: dict[str, Ran]) -> Case:
    return Case(
        ran=ran["rates"],
        candidates=[f"rate={n}" for n in (40, 400, 800)],
        visited=["rate=400", "rate=40"],
        best="rate=40",
    )


@pytest.fixture(params=["by_users", "by_rate"])
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.getfixturevalue(request.param)
    return found


def test_a_search_finds_the_level_that_is_known_to_be_the_highest_and_visits_no_other_than_bisection_does(case: Case):
    noticed = case.ran.run.seal.noticed
    assert f"search: {case.best} holds them; visited {', '.join(case.visited)}" in noticed
    for level in case.visited:
        (said,) = (text for text in noticed if text.startswith(f"search: {level}: "))
        number = int(level.partition("=")[2])
        assert ("does not hold" in said) == (number >= 40 and level != case.best), said
        assert "of 40 requests met the objectives" in said


def test_each_level_that_was_visited_is_a_whole_cell_of_its_own(case: Case):
    run = case.ran.run
    assert [level.label for level in run.levels] == case.visited
    assert [case.candidates[level.index] for level in run.levels] == case.visited
    for level in run.levels:
        assert (level.n_planned, level.n_started, level.n_completed, level.ended_by) == (40, 40, 40, "requests")
        scrapes = [scrape for scrape in run.scrapes if scrape.level == level.label]
        assert [scrape.role for scrape in scrapes if scrape.role in ("before", "after")] == ["before", "after"]
    ends = [level.began_at_monotonic_s + (level.drained_after_s or 0.0) for level in run.levels]
    assert all(end_s < after.began_at_monotonic_s for end_s, after in zip(ends, run.levels[1:], strict=False))
    plans = [{r.prompt_id + str(r.repeat) for r in run.requests if r.level == level} for level in case.visited]
    assert all(not first & second for first, second in itertools.combinations(plans, 2)), "cold: no prompt twice"


def test_what_a_search_left_out_is_said_and_is_no_fault(case: Case):
    left = [level for level in case.candidates if level not in case.visited]
    assert f"not sent: the search did not visit {', '.join(left)}" in case.ran.run.seal.noticed
    assert verify_codes(case.ran.folder) == {"planned_not_started"}
    _, report = analysis("check", str(case.ran.folder))
    of_the_run = {reason["code"] for reason in report["reasons"] if reason["scope"] == "run"}
    assert of_the_run == OF_A_SERVER_WITHOUT_AN_ARM, report["reasons"]
    assert [(one["level"], one["n_requests"], one["why"]) for one in report["left_by_design"]] == [
        (level, 40, "the search did not visit it") for level in left
    ]
    assert report["problems"] == []


def test_the_end_of_the_run_says_what_the_search_found(case: Case):
    (said,) = (line for line in case.ran.stderr.splitlines() if line.startswith("  search: "))
    _, report = analysis("check", str(case.ran.folder))
    assert report["search"].startswith(said.removeprefix("  search: "))
    if not report["search"].startswith("the highest level is not known"):  # a machine so busy that no latency stands
        assert f"{case.best} is the highest level visited that met the objectives (2 of 3 levels" in report["search"]


def verify_codes(folder: Path) -> set[str]:
    return {problem.code for problem in verify(folder)}


def test_sweep_and_summary_name_the_answer_and_only_levels_that_were_visited(
    case: Case, capsys: pytest.CaptureFixture[str]
):
    folder = str(case.ran.folder)
    _, sweep = analysis("sweep", folder)
    (answer,) = sweep["highest_level"].values()
    if "client_late" not in invalid_for_latency(sweep):
        assert answer["level"] == case.best
    else:  # a machine so busy that no latency stands
        assert (answer["level"], "client_late" in answer["said"]) == (None, True)
    assert {level["level"] for level in sweep["levels"]} == set(case.visited)
    left = [level for level in case.candidates if level not in case.visited]
    assert sweep["not_visited"] == left
    _, summary = analysis("summary", folder)
    assert {group["level"] for group in summary["groups"]} == set(case.visited)
    said = printed(capsys, "summary", folder)
    assert f"{case.best} holds them" in said
    assert f"Not visited by the search: {', '.join(left)}." in said
    tables = said.partition("Not visited by the search")[0]
    assert not [level for level in left if f"{level} " in tables]


def invalid_for_latency(sweep: Any) -> list[str]:
    (run,) = sweep["runs"]
    return [code for scope, codes in run["invalid"].items() if scope in ("run", "latency") for code in codes]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command prints, its line breaks taken out."""
    capsys.readouterr()
    main([*arguments])
    return " ".join(capsys.readouterr().out.split())


def queue(run: Any, level: str) -> list[float]:
    return sorted(r.first_token_after_s for r in run.requests if r.level == level)


def test_the_server_was_what_the_search_says_it_is(by_users: Case):
    """At four users nobody waits; at forty the last one does for nine turns of 0.06 s, less its place in the ramp."""
    run = by_users.ran.run
    assert queue(run, "users=4")[35] < OBJECTIVE_S < queue(run, "users=40")[24]
    assert max(queue(run, "users=40")) > 0.02 + 0.06 * (40 - 4) / 4 - 0.06
