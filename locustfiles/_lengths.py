"""How long prompts are for the server that will count them; asked before the run, where a plan has lengths to meet."""

from infra.context_limit import context_limit
from infra.openai_client import OpenAIClient
from infra.probe import probe
from infra.tokenize import ServerTokenizer, TokenizeError
from locustfiles._loop import GEVENT_IO
from locustfiles._manifest import chosen_model
from locustfiles._options import Options, UsageError
from locustfiles._sender import keys_of
from scenarios.plan import Plan
from scenarios.schema import load_scenario
from scenarios.stock import plan_from_file


def plan_of_options(options: Options) -> tuple[Plan, tuple[str, ...]]:
    """The plan of what was typed, and what there is to note of how it was made.

    Raises ScenarioError, and UsageError where the server that has to count prompt tokens does not.
    """
    scenario = load_scenario(options.scenario)
    has_lengths = scenario.context is not None or (
        scenario.arrivals is not None and scenario.arrivals.trace is not None
    )
    if not has_lengths:
        return plan_from_file(options.scenario, passes=options.passes, seed=options.seed), ()
    tokenizer, limit_tokens, where = _ask(options)
    try:
        plan = plan_from_file(
            options.scenario, passes=options.passes, seed=options.seed, count=tokenizer, limit_tokens=limit_tokens
        )
    except TokenizeError as error:
        raise UsageError(f"the prompts' lengths cannot be counted: {error}") from error
    limit = "not stated" if limit_tokens is None else f"{limit_tokens} tokens"
    return plan, (
        f"prompt lengths were counted by {tokenizer.how}: {tokenizer.n_calls} calls before the run, "
        f"{tokenizer.n_requests_of_engine} of them one-token requests",
        f"the server's context limit: {limit} ({where})",
    )


def _ask(options: Options) -> tuple[ServerTokenizer, int | None, str]:
    keys = keys_of(options.headers)
    probed = probe(options.host, headers=keys.headers, metrics_url=options.metrics_urls[0])
    if not probed.reachable:
        raise UsageError(f"nothing answers at {options.host}: start the server, or check --host")
    client = OpenAIClient(options.host, api_key=keys.api_key, timeout_s=60.0, stall_s=None, headers=options.headers)
    try:
        model = chosen_model(options, client)
    finally:
        client.close()
    tokenizer = ServerTokenizer(
        options.host,
        probed.facts.engine,
        model=model,
        headers=list(keys.headers.items()),
        extra_body=options.extra_body,
        io=GEVENT_IO,
    )
    limit = context_limit(probed.bodies(), model)
    return tokenizer, limit.tokens, limit.why
