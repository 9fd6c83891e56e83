"""The sections of the kinds that load a server: ``[levels]``, ``[context]``, ``[arrivals]``, and the profiler's window.

Which section goes with which kind is checked in ``scenarios/schema.py``; here each section is checked by itself. A list
that does not increase is allowed (``scenarios/notices.py`` says so), except where a search bisects it.
"""

from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from scenarios.section import Requests, Seconds, Section, Tokens
from scenarios.strict_toml import refusal

MAX_RATE_PER_S = 100_000.0  # beyond what one client, or a hundred, can send
MOST_S = 10 * 365 * 86_400.0  # from the first arrival to the last, of a trace too
_LONGEST_GAP = 37  # mean gaps: the longest that 53 random bits draw

Users = Annotated[int, Field(ge=1, le=100_000)]
Rate = Annotated[float, Field(gt=0, le=MAX_RATE_PER_S)]


class Levels(Section):
    """``[levels]`` of kind concurrency: closed loop, so many users at once, each level ended by requests or by time.

    ``steady_s`` counts from the instant all users of the level are up. Such a level sends as many requests as the time
    allows; its plan holds ``at_most_requests`` (None: ``cap_of``), and lines not reached are not a fault. With
    ``search`` the users are candidates: bisection looks for the highest level that holds the objectives of [limits].
    """

    users: Annotated[tuple[Users, ...], Field(min_length=1)]
    requests: Requests | None = None  # for each level; None: the level is ended by steady_s
    steady_s: Seconds | None = None  # for each level; None: the level is ended by its number of requests
    at_most_requests: Requests | None = None  # for each level; only with steady_s
    search: bool = False

    @model_validator(mode="after")
    def _one_end_and_no_more(self) -> Self:
        if self.requests is not None and self.steady_s is not None:
            message = f"stands beside levels.requests = {self.requests}, and a level ends by one of them; take one out"
            raise refusal("levels.steady_s", self.steady_s, message)
        if self.requests is None and self.steady_s is None:
            message = "is missing, and so is levels.steady_s; write requests = 90 or steady_s = 60.0 into [levels]"
            raise refusal("levels.requests", None, message)
        if self.at_most_requests is not None and self.steady_s is None:
            message = "bounds levels ended by time, and these end by levels.requests; take it out or write steady_s"
            raise refusal("levels.at_most_requests", self.at_most_requests, message)
        if self.search:
            _increasing("levels.users", self.users)
        return self

    def cap_of(self, users: int) -> int:
        """Requests the plan holds for a level of so many users.

        Ended by time and with no ``at_most_requests``: one a user and second, ten seconds more for ramp and drain, and
        never under 64. A level that uses them all up ends early and its record says so.
        """
        if self.requests is not None:
            return self.requests
        if self.at_most_requests is not None:
            return self.at_most_requests
        assert self.steady_s is not None  # the validator saw to it
        return max(64, users * (int(self.steady_s) + 11))


class Context(Section):
    """``[context]`` of kind context: every prompt lengthened to an exact number of tokens, counted by the server.

    ``target_tokens`` count everything the server counts as the prompt, its chat template too. ``requests`` are sent for
    each target, one at a time. ``shared_prefix_tokens`` is the length of a text that starts every prompt of a target;
    0: every prompt starts with a text of its own.
    """

    target_tokens: Annotated[tuple[Tokens, ...], Field(min_length=1)]
    requests: Requests
    shared_prefix_tokens: Annotated[int, Field(ge=0, le=10_000_000)] = 0

    @model_validator(mode="after")
    def _prefix_leaves_room(self) -> Self:
        if self.shared_prefix_tokens >= min(self.target_tokens):
            message = f"leaves no room in target_tokens = {min(self.target_tokens)}; write a smaller prefix"
            raise refusal("context.shared_prefix_tokens", self.shared_prefix_tokens, message)
        return self


class Arrivals(Section):
    """``[arrivals]`` of kind arrivals: open loop, requests are sent when their time has come, answered or not.

    ``rate_per_s``: one level each, of ``requests`` arrivals. A trace has its own times and lengths: ``requests`` then
    takes its first so many lines (None: all). ``max_in_flight`` is the cap at which the client gives up holding the
    rate, which is a reason of the verdict. With ``search`` the rates are candidates, as in ``Levels``.
    """

    process: Literal["poisson", "constant", "trace"]
    rate_per_s: tuple[Rate, ...] = ()
    requests: Requests | None = None
    max_in_flight: Annotated[int, Field(ge=1, le=100_000)] = 256
    trace: Annotated[str, Field(min_length=1)] | None = None  # JSONL, relative to the scenario file
    search: bool = False

    @model_validator(mode="after")
    def _process_has_what_it_needs(self) -> Self:
        if self.process == "trace":
            self._fits_a_trace()
        else:
            self._fits_a_rate()
        if self.search:
            _increasing("arrivals.rate_per_s", self.rate_per_s)
        return self

    def _fits_a_trace(self) -> None:
        if self.trace is None:
            message = 'is missing, and process = "trace" needs a file; write trace = "FILE.jsonl" into [arrivals]'
            raise refusal("arrivals.trace", None, message)
        if self.rate_per_s:
            message = 'has no meaning beside process = "trace", whose lines have their own times; take it out'
            raise refusal("arrivals.rate_per_s", list(self.rate_per_s), message)
        if self.search:
            raise refusal("arrivals.search", True, "needs rates to choose among, and a trace has none; take it out")

    def _fits_a_rate(self) -> None:
        if self.trace is not None:
            message = f'is read only under process = "trace", not "{self.process}"; take it out or change process'
            raise refusal("arrivals.trace", self.trace, message)
        if not self.rate_per_s:
            message = f'is missing, and process = "{self.process}" needs it; write rate_per_s = [1.0, 2.0]'
            raise refusal("arrivals.rate_per_s", None, message)
        if self.requests is None:
            message = f'is missing, and process = "{self.process}" needs it; write requests = 90 into [arrivals]'
            raise refusal("arrivals.requests", None, message)
        slowest = min(self.rate_per_s)
        if self.requests + _LONGEST_GAP > slowest * MOST_S:
            message = f"needs more than ten years for {self.requests} requests; write a higher rate, for example 0.1"
            raise refusal("arrivals.rate_per_s", slowest, message)


class Profile(Section):
    """``profile`` of [telemetry]: the server's profiler runs for ``steps`` once ``after_requests`` have ended."""

    steps: Annotated[int, Field(ge=1, le=10_000)]
    after_requests: Annotated[int, Field(ge=0, le=1_000_000)]


def _increasing(key: str, values: tuple[float, ...]) -> None:
    if any(later <= earlier for earlier, later in pairwise(values)):
        message = "does not increase, and a search bisects it; write each value once, the smallest first"
        raise refusal(key, list(values), message)
