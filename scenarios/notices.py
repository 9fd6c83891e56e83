"""What is allowed in a scenario and worth a sentence to whoever runs it: nothing here is an error."""

from itertools import pairwise

from scenarios.schema import Scenario

FAST_RATE_PER_S = 2_000.0  # above it, one client process is unlikely to hold the rate


def plan_notices(scenario: Scenario) -> tuple[str, ...]:
    """One sentence a notice, for a caller to print; empty where there is nothing to say."""
    return (*_order(scenario), *_shared_prompts(scenario), *_load(scenario), *_profile(scenario))


def _order(scenario: Scenario) -> list[str]:
    said = []
    lists: dict[str, tuple[float, ...]] = {}
    if scenario.levels is not None:
        lists["levels.users"] = scenario.levels.users
    if scenario.context is not None:
        lists["context.target_tokens"] = scenario.context.target_tokens
    if scenario.arrivals is not None:
        lists["arrivals.rate_per_s"] = scenario.arrivals.rate_per_s
    for key, values in lists.items():
        if any(later <= earlier for earlier, later in pairwise(values)):
            written = ", ".join(f"{value:.15g}" for value in values)
            said.append(
                f"{key} = [{written}] does not increase: levels run in the order written, and a level keeps what an "
                "earlier, larger one left on the server"
            )
        if len(set(values)) < len(values):
            said.append(f"{key} names a value more than once: each is a level of its own, the later ones end in #2, #3")
    return said


def _shared_prompts(scenario: Scenario) -> list[str]:
    policy, said = scenario.cache.policy, []
    n_levels = max(
        len(scenario.levels.users) if scenario.levels is not None else 0,
        len(scenario.arrivals.rate_per_s) if scenario.arrivals is not None else 0,
    )
    if n_levels > 1 and policy != "cold":
        said.append(
            f'cache.policy = "{policy}": every level sends the same prompts, and a prefix cache may answer for the '
            'later ones; "cold" keeps them apart'
        )
    context = scenario.context
    if context is not None and context.shared_prefix_tokens and scenario.cache.per == "request" and policy == "cold":
        said.append(
            f"context.shared_prefix_tokens = {context.shared_prefix_tokens} is never met again: the cache is cold for "
            'each request; write per = "cell" to measure the prefix cache'
        )
    return said


def _load(scenario: Scenario) -> list[str]:
    levels, arrivals, said = scenario.levels, scenario.arrivals, []
    if levels is not None and levels.steady_s is not None:
        caps = ", ".join(f"{levels.cap_of(users)} for {users}" for users in levels.users)
        said.append(
            f"levels.steady_s = {levels.steady_s:g}: the plan holds so many requests for each number of users: {caps}; "
            "a level that uses them up ends early (levels.at_most_requests sets the number), and those left over were "
            "never due"
        )
    if levels is not None and levels.requests is not None:
        crowded = [users for users in levels.users if users > levels.requests]
        if crowded:
            said.append(
                f"levels.requests = {levels.requests} is less than {crowded[0]} users: not all of them get one, so "
                "such a level is never full and has no steady window"
            )
    if arrivals is not None:
        fast = [rate for rate in arrivals.rate_per_s if rate > FAST_RATE_PER_S]
        if fast:
            said.append(
                f"arrivals.rate_per_s = {fast[0]:g} is more than one client process is likely to send; use several "
                "workers, and read the achieved rate"
            )
        if arrivals.process == "trace" and not scenario.request.ignore_eos:
            said.append(
                "request.ignore_eos = false: answers may end before a trace's output_length; true holds them to it"
            )
    return said


def _profile(scenario: Scenario) -> list[str]:
    if scenario.telemetry.profile is None:
        return []
    return ["telemetry.profile: this launch is profiled, so none of its times enter a comparison"]
