"""Progress: a bar in a terminal, and in a log file few lines, whatever the number of requests."""

import io

from locustfiles._progress import Progress
from tests.terminal import Terminal


def test_a_log_file_gets_a_line_a_level_however_many_requests_end():
    out = io.StringIO()
    progress = Progress("arm", 5000, lambda: 7, out)
    progress.begin()
    progress.level("users=8", 1, 2, 4000, None)
    for number in range(4000):
        progress.ended("completed" if number % 4 else "http_error")
    progress.level("users=16", 2, 2, 1000, None)
    first, second = out.getvalue().splitlines()
    assert first == "arm users=8 (1 of 2): 0 of 5000 requests, 7 in flight, 0 failed"
    assert second == "arm users=16 (2 of 2): 4000 of 5000 requests, 7 in flight, 1000 failed"


def test_a_level_that_goes_by_time_names_the_time_left_and_no_number_it_may_never_reach():
    out = io.StringIO()
    progress = Progress("arm", 9000, lambda: 0, out)
    progress.level("users=8", 1, 1, 9000, 60.0)
    assert out.getvalue() == "arm users=8 (1 of 1): 0 requests, 0 in flight, 0 failed, about 60 s left of the level\n"


def test_a_terminal_gets_one_bar_that_knows_the_level_and_what_is_left_out():
    out = Terminal()
    progress = Progress("arm", 20, lambda: 3, out)
    progress.begin()
    progress.level("users=8", 1, 2, 10, None)
    for _ in range(10):
        progress.ended("completed")
    progress.skip(10)
    progress.close()
    assert "arm users=8 (1 of 2)" in out.getvalue()
    assert "10/10" in out.getvalue()
    assert "3 in flight, 0 failed" in out.getvalue()


def test_of_a_search_nothing_is_promised_that_it_may_never_visit():
    out, terminal = io.StringIO(), Terminal()
    Progress("arm", 49, lambda: 0, out, at_most=True).level("users=2", 1, 3, 12, None)
    assert out.getvalue() == "arm users=2 (1 of at most 3): 0 of at most 49 requests, 0 in flight, 0 failed\n"
    progress = Progress("arm", 49, lambda: 0, terminal, at_most=True)
    progress.begin()
    progress.level("users=2", 1, 3, 12, None)
    progress.skip(0)
    progress.close()
    assert "1 of at most 3" in terminal.getvalue() and "49" not in terminal.getvalue()
